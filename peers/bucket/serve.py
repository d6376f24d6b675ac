"""A bucket server on loopback: prints where it is once it is ready, and runs until its input ends."""
import sys

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
endpoint = f"http://{host}:{port}"
keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="castles")
print(f"ready {endpoint}", flush=True)
sys.stdin.read()
server.stop()
