"""Imports: tables that another tool wrote become a sealed run, exact or not at all."""
