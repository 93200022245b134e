# The control image for those who have a daemon; `python -m deployments.images build control` needs none.
#   docker build -f deployments/images/control.Dockerfile --build-arg BASE_DIGEST=sha256:… -t primus-flows/control:0.1 .
# The digest has no default: a base that may change is no base.
ARG BASE_DIGEST
FROM python:3.11-slim@${BASE_DIGEST}
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY profiles profiles
COPY workflows workflows
COPY tasks tasks
COPY flows flows
COPY deployments deployments
# The variable also pins what pip builds with.
RUN PIP_CONSTRAINT=/src/constraints.txt python -m pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[control,program]' \
 && mkdir -p /var/lib/primus \
 && chown 65532:65532 /var/lib/primus
ENV PRIMUS_HOME=/var/lib/primus HOME=/var/lib/primus
VOLUME /var/lib/primus
WORKDIR /
USER 65532:65532
ENTRYPOINT ["primus"]
