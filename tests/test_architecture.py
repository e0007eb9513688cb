"""The layout of the code: no module takes part in an import cycle, and packages are docstrings."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

from training.model.project import PROJECT_FOLDER

PACKAGES = ("ui", "backend", "training")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def test_no_module_takes_part_in_an_import_cycle(graph: grimp.ImportGraph):
    """Imports for type checkers alone count too: a reader follows them as well."""
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_docstrings(package: str):
    for path in (PROJECT_FOLDER / package).rglob("__init__.py"):
        statements = ast.parse(path.read_text(encoding="utf-8")).body
        assert len(statements) == 1, path
        assert isinstance(statements[0], ast.Expr), path


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_modules_is_a_package(package: str):
    folders = {path.parent for path in (PROJECT_FOLDER / package).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []
