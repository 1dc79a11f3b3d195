"""The one table that says which keys of a submitted recipe are execution and not identity."""

EXECUTION_KEYS: dict[str, str] = {
    "run.output_dir": "runs",
    "run.run_id": "run_id",
    "run.name": "run_name",
    "run.notes": "notes",
    "run.tags": "tags",
    "run.execution_plan_digest": "inherited.run_execution_plan_digest",
    "run.profile_identity": "inherited.run_profile_identity",
    "models.device": "device",
    "models.runtime": "models_runtime",
    "models.teacher.plugin.path": "plugins.teacher",
    "environment.plugin.path": "plugins.environment",
    "selection.plugin.path": "plugins.selector",
    "models.student.gradient_checkpointing": "gradient_checkpointing",
    "source.row_batch_size": "row_batch_size",
    "rollout.record_logprobs": "inherited.rollout_record_logprobs",
    "rollout.prompt_batch_size": "inherited.rollout_prompt_batch_size",
    "rollout.max_padded_tokens": "inherited.rollout_max_padded_tokens",
    "loss.chunk_size": "chunk_size",
    "loss.exact_max_vocab": "inherited.loss_exact_max_vocab",
    "loss.allow_large_exact": "inherited.loss_allow_large_exact",
    "train.trajectory_batch_size": "trajectory_batch_size",
    "train.max_update_padded_tokens": "max_update_padded_tokens",
    "train.length_bucketing": "length_bucketing",
    "train.log_every_steps": "inherited.train_log_every_steps",
    "train.save_every_cycles": "inherited.train_save_every_cycles",
    "memory.strategy": "memory_strategy",
    "memory.oom_retries": "oom_retries",
    "memory.min_chunk_size": "min_chunk_size",
    "memory.empty_cache_between_phases": "memory_empty_cache_between_phases",
    "memory.reset_peak_stats_each_cycle": "memory_reset_peak_stats_each_cycle",
    "memory.auto_swap_vram_headroom_gb": "memory_auto_swap_vram_headroom_gb",
    "cache.enabled": "cache_enabled",
    "cache.dir": "cache_dir",
    "cache.max_bytes": "cache_max_bytes",
    "cache.entries_per_shard": "cache_entries_per_shard",
    "cache.dtype": "inherited.cache_dtype",
    "cache.strict_policy_version": "inherited.cache_strict_policy_version",
    "cache.reuse_across_policy_versions": "inherited.cache_reuse_across_policy_versions",
    "cache.keep_cycles": "inherited.cache_keep_cycles",
    "cache.verify_checksums_on_load": "inherited.cache_verify_checksums_on_load",
}
"""Dotted key of the submitted document -> dotted field of ``Runtime``. What lands in
``inherited`` has no effect here and is announced."""

EXECUTION_SECTIONS = ("memory", "cache")
"""Sections of the submitted document without any identity key."""
