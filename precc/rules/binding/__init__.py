"""Rules on what each rule of a policy did on a model."""
