"""The ports: the verbs that a database must offer to demora, one port per file, and the values that the verbs use."""
