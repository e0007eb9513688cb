"""The bar above every tab: where one can go, which model speaks, what is running, light or dark."""
