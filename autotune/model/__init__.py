"""Plain data that the rooms exchange: frozen, checked when built, with a JSON form (`autotune.protocol.codec`)."""
