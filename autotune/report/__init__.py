"""Output for people and programs: lines during a search, the summary, and JSON documents."""
