# Everything a person types. Each target installs what it needs on Debian 12 first.
.PHONY: build demo serve test bench fuzz soak docs format clean

build:
	@deploy/install-deps.sh build
	@cmake --preset release >build.log 2>&1 || { cat build.log; exit 1; }
	@rm -f build.log
	@cmake --build --preset release --target moe-leader moe-worker moectl

# Starts a leader and two workers with the embedded model, asks questions, prints answers and a table, and stops them.
demo: build
	@deploy/demo.sh

# The same, and keeps serving until Ctrl-C.
serve: build
	@deploy/demo.sh --serve

test:
	@deploy/install-deps.sh
	@python3 tests/run.py

bench: build
	@cmake --build --preset release
	@tests/bench/run.sh

# Runs each fuzzer for MINUTES (default 10) and keeps what it finds under build/fuzz.
fuzz:
	@deploy/install-deps.sh
	@python3 tests/run.py --fuzz $(or $(MINUTES),10)

# The tests that have a long form, each for MINUTES (default 5), with the bounds that a quiet machine keeps.
soak: build
	@deploy/install-deps.sh
	@SOAK_MINUTES=$(or $(MINUTES),5) tests/e2e/run.sh tests/e2e -m soak -rA

# docs/options.md and docs/flags.md are written from the tables of options, docs/openapi.json from those of the API.
docs: build
	@{ echo '# Options'; echo; \
	  echo 'Made from `common/conf/options_tables.c` by `make docs`. Flags win over variables, variables over the YAML file given by `--config`.'; echo; \
	  for program in moe-leader moe-worker moectl; do build/release/$$program --help-markdown; done; } > docs/options.md
	@{ sed '/^| flag/,$$d' docs/flags.md; build/release/moe-leader --help-flags-markdown; } > docs/flags.md.new
	@mv docs/flags.md.new docs/flags.md
	@build/release/moe-leader --help-openapi > docs/openapi.json

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build
