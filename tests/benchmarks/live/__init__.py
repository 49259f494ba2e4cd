"""How far the rate of a live measurement lies from the rate in a fresh process, setting by setting."""
