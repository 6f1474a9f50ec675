"""What the translator is trained for: translation. Other tasks are add-ons."""
