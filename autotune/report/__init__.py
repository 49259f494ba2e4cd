"""What people and programs are told: lines while a search runs, its summary, and JSON documents."""
