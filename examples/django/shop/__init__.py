"""A shop that takes orders and sends the mails about them later."""
