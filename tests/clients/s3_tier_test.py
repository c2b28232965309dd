"""The KV store's S3 tier against moto's S3 server, which checks every signature."""

import os
import pathlib
import subprocess

import pytest

pytestmark = pytest.mark.clients

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("DEEPINFER_BINARY", ROOT / "build/release/deepinfer")).parent / "src/store/store_s3_test"
SETUP_ACTIONS = 4  # those below, sent before the server asks who we are


def test_blocks_are_kept_under_signed_requests():
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(SETUP_ACTIONS)
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        def client(service, key="nobody", secret="nothing"):
            return boto3.client(
                service,
                endpoint_url=endpoint,
                region_name="us-east-1",
                aws_access_key_id=key,
                aws_secret_access_key=secret,
            )

        client("s3").create_bucket(Bucket="blocks")
        iam = client("iam")
        iam.create_user(UserName="store")
        policy = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
        iam.put_user_policy(UserName="store", PolicyName="all", PolicyDocument=policy)
        made = iam.create_access_key(UserName="store")["AccessKey"]
        environment = {
            **os.environ,
            "DEEPINFER_S3_ENDPOINT": endpoint,
            "DEEPINFER_S3_BUCKET": "blocks",
            "DEEPINFER_S3_ACCESS_KEY": made["AccessKeyId"],
            "DEEPINFER_S3_SECRET_KEY": made["SecretAccessKey"],
        }
        done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert "SKIPPED" not in done.stdout

        s3 = client("s3", made["AccessKeyId"], made["SecretAccessKey"])
        names = [item["Key"] for item in s3.list_objects_v2(Bucket="blocks", Prefix="kv/")["Contents"]]
        assert len(names) == 38 + 20 + 1  # two were removed; what is out of date lies there until the bucket's own rule
        assert all(name.split("/")[1] == name.split("/")[2][:2] for name in names)
    finally:
        server.stop()
