"""The conformance kit of the worker protocol: tries a remote worker in any language against its promises."""
