"""An application of Django for the suite."""
