"""The examples that start no engine: manifests, a service's configuration, Dockerfiles."""
