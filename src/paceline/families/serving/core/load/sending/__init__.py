"""How a client sends its calls: addresses, fields, connections, redirects and alarms of its event loop."""
