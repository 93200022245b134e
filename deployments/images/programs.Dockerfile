# The programs image for those who have a daemon; `python -m deployments.images build programs` needs none.
#   docker build -f deployments/images/programs.Dockerfile --build-arg BASE_DIGEST=sha256:… -t primus-flows/programs:0.1 .
# The digest has no default: a base that may change is no base.
ARG BASE_DIGEST
FROM python:3.11-slim@${BASE_DIGEST} AS build
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY profiles profiles
COPY workflows workflows
COPY tasks tasks
COPY flows flows
COPY deployments deployments
# The variable also pins what pip builds with.
RUN PIP_CONSTRAINT=/src/constraints.txt python -m pip install --no-cache-dir --disable-pip-version-check -c constraints.txt .
RUN python -c "from pathlib import Path; from tasks.programs_archive import programs_archive; programs_archive(Path('/built')).rename('/programs.pyz')" \
 && printf '#!/bin/sh\nexec python3 -I -S /opt/primus/programs.pyz "$@"\n' >/primus-programs \
 && chmod 755 /primus-programs

FROM python:3.11-slim@${BASE_DIGEST}
COPY --from=build /programs.pyz /opt/primus/programs.pyz
COPY --from=build /primus-programs /usr/local/bin/primus-programs
USER 65532:65532
ENTRYPOINT ["primus-programs"]
