"""The verbs on jobs: adding and changing them, their runs from claim to settlement, and finding them."""
