"""The training DataLoader: found, rebuilt with other arguments, and fed to the script batch by batch."""
