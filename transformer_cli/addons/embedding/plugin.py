"""What this add-on registers."""
