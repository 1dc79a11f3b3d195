"""What is computed: everything here runs in a notebook and knows no orchestrator.

Axes that name tensors and lists (``student_logits_BTV`` is batch × token × vocabulary):

    B batch row       T token position      V vocabulary       H hidden width
    N selected position (ragged trajectories, concatenated)    K support (top-k) entry
    S slot (physical row of the rollout engine)    Q query token of one engine step
    W key/value width    L layer    D head width    G group of samples of one prompt

Scalars carry no suffix. Log-probabilities, divergences and entropies are in nats.
"""
