"""The verbs on jobs: adding and changing them, housekeeping, their runs from claim to settlement, and finding them."""
