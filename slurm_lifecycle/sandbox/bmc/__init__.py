"""Emulated BMCs for a real Redfish client: one loopback port each, with the vices of the field on demand."""
