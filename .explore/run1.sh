python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl && export PYTHONPATH=/tmp/site || exit
export PYTHONUNBUFFERED=1
nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv
python3 -c "import cuda.bindings,sys,pandas,rich,hypothesis;print(cuda.bindings.__version__)"; python3 -m pip list 2>/dev/null | grep -iE "nvidia-ml|ruff|pynvml|helion|flashinfer|numpy |pytest"
timeout 230 python3 -m pytest -q -x --maxfail=8 tests/test_semaphore.py tests/test_decompose_k.py tests/test_checks.py 2>&1 | tail -60 | tee $OUT/tests.log
timeout 320 python3 .explore/explore.py 2>&1 | grep -v "Building\|Scheduling" | tee $OUT/explore.log
