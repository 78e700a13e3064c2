"""What leaves Temper about its requests: one frozen record each, and one small file per sink."""
