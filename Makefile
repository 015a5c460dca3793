# Each target is one line: run.py does the work, and does the same on Windows.
# Extra arguments: make notebooks ARGS=9_3
PYTHON ?= python3

.PHONY: book test cpus lab notebooks package evidence bench clean

book: ; @$(PYTHON) run.py book $(ARGS)
test: ; @$(PYTHON) run.py test $(ARGS)
cpus: ; @$(PYTHON) run.py cpus $(ARGS)
lab: ; @$(PYTHON) run.py lab $(ARGS)
notebooks: ; @$(PYTHON) run.py notebooks $(ARGS)
package: ; @$(PYTHON) run.py package $(ARGS)
evidence: ; @$(PYTHON) run.py evidence $(ARGS)
bench: ; @$(PYTHON) run.py bench $(ARGS)
clean: ; @$(PYTHON) run.py clean $(ARGS)
