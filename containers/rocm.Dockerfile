# What a rank on AMD GPUs needs. Not run: needs a registry and AMD GPUs.
#   make image DEVICE=rocm BASE=REGISTRY/NAME@sha256:…      BASE: AMD's image rocm/pytorch, which brings torch and the vendor's libraries
ARG BASE
FROM ${BASE} AS check
USER 0:0
COPY locks/accelerator.txt /tmp/lock.txt
COPY wheels/ /tmp/wheels/
# The vendor's torch stays as it is; numpy is only added where it is missing. A base for another device fails here.
RUN set -eu; \
    mkdir -p /opt/paceline; \
    python3 -c "import numpy" 2>/dev/null || python3 -m pip install --quiet --no-index --find-links /tmp/wheels --require-hashes \
        --no-deps --no-compile --target /opt/paceline --requirement /tmp/lock.txt; \
    PYTHONPATH=/opt/paceline python3 -c "import numpy, torch; assert torch.version.hip, 'this torch was not built for ROCm'"

FROM ${BASE}
USER 0:0
COPY --from=check /opt/paceline /opt/paceline
# A folder of the path list, not PYTHONPATH: jobs set that for themselves.
RUN python3 -c "import pathlib, sysconfig; pathlib.Path(sysconfig.get_path('purelib'), 'paceline.pth').write_text('/opt/paceline\n')"
ARG GIT_SHA=unknown
LABEL org.opencontainers.image.title="Paceline ranks on AMD GPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${GIT_SHA}" \
      io.paceline.image-class="rocm"
ENTRYPOINT []
USER 10001:10001
