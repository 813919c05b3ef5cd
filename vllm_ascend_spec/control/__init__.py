"""Choose K from measured acceptance and measured step times."""
