"""From YAML files to one frozen, typed configuration."""
