"""What a diagnosis looks at once the window of its trial is over, and nothing else ever is."""
