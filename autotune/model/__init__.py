"""Plain data that passes between the rooms: frozen, checked when built, with a JSON form (`autotune.plain`)."""
