"""The HTTP interface: names and shapes of OpenAI's speech API, so that its clients work unchanged."""
