"""Customers, pools, insights and templates over HTTP."""
