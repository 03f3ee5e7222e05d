"""demora in other frameworks. Each module needs the framework that it is named after. No other room imports this one."""
