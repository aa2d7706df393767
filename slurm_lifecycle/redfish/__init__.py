"""BMCs over Redfish: the only home of sushy."""
