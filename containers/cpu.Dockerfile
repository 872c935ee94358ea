# What a rank on processors needs, and nothing else: Python, torch, numpy. The engine itself comes with each job folder.
#   make image-base image           on a machine without a registry
#   BASE is pinned by digest where there is one: python3 of Debian 12, as locks/cpu.txt is for its version of Python
ARG BASE
FROM ${BASE} AS build
ARG SOURCE_DATE_EPOCH=0
COPY locks/cpu.txt /tmp/lock.txt
COPY wheels/ /tmp/wheels/
# Wheels come from the host, so that nothing is fetched here. What only compilers and torch's own tests need goes;
# compiled files are checked by nobody's clock, so that the same input gives the same bytes.
RUN set -eu; \
    set -- /tmp/wheels/pip-*.whl; \
    python3 "$1/pip" install --quiet --no-index --find-links /tmp/wheels --require-hashes --no-deps --no-compile \
        --root /out --break-system-packages --root-user-action ignore --requirement /tmp/lock.txt; \
    cd "/out$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; \
    rm -rf torch/include torch/share torch/test torch/bin/protoc*; \
    find . -name tests -path './sympy/*' -prune -exec rm -rf {} +; \
    python3 -m compileall -q -j 0 -s /out --invalidation-mode unchecked-hash . || true; \
    PYTHONPATH="$PWD" python3 -c "import numpy, torch; assert torch.distributed.is_gloo_available()"; \
    find /out -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +

# Copied to the root, whose own time is in no layer: a folder that is copied to gets the time of the copy.
FROM ${BASE}
COPY --from=build /out/ /
ARG GIT_SHA=unknown
LABEL org.opencontainers.image.title="Paceline ranks on processors" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${GIT_SHA}" \
      io.paceline.image-class="cpu"
USER 10001:10001
