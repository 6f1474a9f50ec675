"""Pictures of where a model looks: what is looked at, and how it is drawn."""
