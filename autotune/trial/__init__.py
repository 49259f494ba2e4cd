"""What happens inside the user's process: settings applied at torch's seams, a meter attached, a report at the end."""
