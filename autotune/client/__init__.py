"""Speaks to a server: submits jobs, follows events, and reads studies. Standard library only.

Example:
    ```python
    from autotune.client import Client

    client = Client("http://127.0.0.1:8642", token_file="service.token")
    job = client.submit("demo", "train.py", ["--epochs", "5"], {"trials": 4})
    for event in client.events(job.id):
        print(event.name, event.document)
    print(client.config(client.job(job.id).study))
    ```
"""

from autotune.client.connection import ServerError, UnreachableError
from autotune.client.service_client import Client, Job, ServiceEvent

__all__ = ["Client", "Job", "ServerError", "ServiceEvent", "UnreachableError"]
