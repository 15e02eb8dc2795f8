"""HTTP/1.1 under Twisted protocols: server, client, server-sent events; knows no surface and no backend."""
