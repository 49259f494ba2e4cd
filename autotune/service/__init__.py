"""The service: a queue of searches, an API, a page, and workers on many machines.

`app.py` makes the ASGI application and has the table of routes. Each folder has one subject:

* `api/`: the JSON API, version 1, one file for each resource;
* `pages/`: the HTML pages for browsers;
* `security/`: middleware for tokens, hosts, origins, sizes and rates;
* `worker/`: `autotune worker`, which leases jobs and runs searches;
* `engines/`: starts of workers by Ray and Slurm. Kubernetes and Compose start workers by `deploy/kubernetes.yaml` and
  `compose.yaml`.

The queue itself is in the room `store`, and the Python client in the room `client`.
"""
