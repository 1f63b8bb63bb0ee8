"""Cases that `make soak` runs and `make test` leaves out, by their measured time: other cases of the same test stay.

A case is here if it took more than 0.6 seconds of a processor in the gate, which has thirty minutes, and the test has
a shorter case; of tests whose cases are all long, the shortest stays.
"""

__all__ = ["LONG", "is_long"]

FAULTS_OF_PORTS = (
    *("beta1", "beta2", "clip", "decay", "ema", "epsilon", "forward", "frozen", "gradient", "late", "loss", "order"),
    *("rate", "start"),
)
"""Of `tests/ports/test_twins.py`; the others stay in the gate, in float64 and below."""

STATES = (
    "loss scaler",
    "native dropout",
    "sgd without momentum",
    "statistics and counters",
    "tied weights",
    "two groups",
)
"""Of the checkpoints of the JAX side; plain Adam, the shortest, stays."""

LONG: dict[str, dict[str, tuple[str, ...]]] = {
    "architecture/test_imports.py": {
        "test_importing_a_side_loads_its_own_framework_only_and_starts_no_device": ("jax_side-foreign0",),
    },
    "benchmarks/test_bare_loops.py": {
        "test_a_loop_that_does_other_work_is_not_compared": (
            "jax-another rate",
            "jax-no clipping",
            "jax-no decay",
            "jax-other batches",
        ),
        "test_the_bare_jax_loops_give_the_twins_losses_and_again_after_a_reset": ("cnn-digits",),
    },
    "benchmarks/test_saves_beside.py": {
        "test_a_plain_save_holds_the_state_of_its_step_though_training_went_on": ("jax-OrbaxSaves",),
        "test_a_raw_save_writes_as_many_bytes_and_files_with_as_many_fsyncs_as_the_twin": ("jax",),
        "test_every_arm_of_the_slowdown_ends_at_the_same_state_and_waits_for_its_last_save": ("jax",),
    },
    "benchmarks/test_saving.py": {
        "test_a_copy_moves_the_state_as_it_is_at_the_time_and_as_it_lies_in_memory": ("jax",),
        "test_other_savers_save_and_load_the_whole_state": ("orbax_saver",),
    },
    "benchmarks/test_unsealed.py": {
        "test_nothing_is_digested_and_everything_is_written": ("jax",),
    },
    "cli/test_bad_input.py": {
        "test_a_checkpoint_without_a_seal_is_taken_only_by_its_step_and_that_is_said": ("jax",),
        "test_a_damaged_newer_checkpoint_is_moved_aside_and_named": ("jax",),
        "test_a_flipped_bit_names_the_file_and_the_leaf_and_the_run_goes_on_from_the_one_before": ("jax",),
        "test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint": ("jax",),
        "test_no_whole_checkpoint_says_what_was_found_and_why_it_does_not_count": ("jax",),
        "test_twenty_skips_in_a_row_stop_the_run_and_nineteen_do_not": ("jax",),
    },
    "cli/test_bad_values.py": {
        "test_a_file_that_is_no_spec_is_refused_in_one_line": ("200,000 layers",),
        "test_what_never_ends_is_neither_read_nor_waited_for": (
            "bench run --side torch --spec /dev/zero",
            "check --spec /dev/zero",
            "compare /dev/zero pipe.toml",
            "policy simulate /dev/zero",
            "policy simulate pipe.toml",
            "report /dev/zero",
            "report pipe.toml",
            "report pipe.toml --html pipe.toml",
            "train --side jax --dir run --spec mlp-digits --set batch=512 --set mesh.data=512",
            "train --side torch --dir run --spec ./pipe.toml",
            "train --side torch --dir run --spec /dev/zero",
            "train --side torch --dir run --spec gpt-text --set data.path=pipe.toml",
            "train --side torch --dir run --spec zero.toml",
            "verify pipe.toml",
        ),
    },
    "cli/test_check_command.py": {
        "test_no_color_is_honoured": ("False",),
    },
    "cli/test_check_progress.py": {
        "test_every_check_reports_its_steps": ("checks0-sides0",),
    },
    "cli/test_exit_codes.py": {
        "test_a_command_exits_with_the_code_of_the_table_and_says_why": (
            "demo",
            "where --torch tests.ports.corpus.small:Model --jax tests.ports.corpus.small:port",
        ),
    },
    "cli/test_explain_sharding.py": {
        "test_the_bytes_are_those_on_each_device": ("mlp-digits-overrides0",),
    },
    "cli/test_export_to.py": {
        "test_the_run_goes_on_in_the_other_framework": ("torch",),
    },
    "cli/test_help.py": {
        "test_no_color_means_no_escape_code_on_a_terminal": ("train --side",),
    },
    "cli/test_interrupt.py": {
        "test_a_closing_terminal_sends_several_signals_and_the_results_are_written": ("numbers1",),
        "test_a_second_signal_ends_the_process_at_once": ("15",),
        "test_a_signal_is_heard_while_the_main_thread_is_inside_a_long_call": ("15", "2"),
        "test_control_c_ends_a_short_command_with_one_line": (
            "checkpoints-home_of-words1",
            "policy-read_curve-words3",
            "report-_render-words2",
        ),
    },
    "cli/test_lost_streams.py": {
        "test_a_check_whose_progress_is_lost_writes_what_it_judged_and_ends": ("full-3",),
        "test_a_command_whose_output_is_lost_gives_no_verdict": ("check-full", "check-pipe"),
        "test_a_stream_that_was_never_open_is_as_one_to_nowhere": ("2>&-", ">&- 2>&-"),
        "test_training_continues_without_its_lines": (
            "jax-stderr-full",
            "jax-stderr-pipe",
            "jax-stdout-full",
            "jax-stdout-pipe",
            "torch-stderr-full",
            "torch-stdout-full",
            "torch-stdout-pipe",
        ),
        "test_training_outlives_a_reader_that_has_read_enough": ("jax",),
    },
    "convert/test_alike.py": {
        "test_a_function_of_another_class_is_refused_by_name": ("lamb", "yogi"),
        "test_a_transformation_of_the_same_steps_is_filled_and_comes_back_without_a_flag": ("adam-Adam",),
        "test_adamax_and_radam_get_the_values_that_pytorch_has": (
            "by name-adamax-Adamax",
            "by name-radam-RAdam",
            "by the transformation-radam-RAdam",
        ),
        "test_momentum_goes_to_an_update_that_takes_the_same_steps": ("True",),
    },
    "convert/test_begun_in_jax.py": {
        "test_moments_that_jax_began_become_the_entries_that_pytorch_would_have": (
            "Adafactor",
            "Adam",
            "Muon",
            "Rprop",
            "SGD",
        ),
    },
    "convert/test_convert.py": {
        "test_a_disk_that_is_full_in_the_middle_leaves_nothing": ("dcp", "orbax", "safetensors", "torch.save"),
        "test_a_killed_conversion_leaves_nothing_that_looks_whole": ("torch.save",),
    },
    "convert/test_from_jax.py": {
        "test_pytorch_has_every_element": ("Orbax, one save", "Orbax, version 1", "flax.training"),
    },
    "convert/test_measured_updates.py": {
        "test_the_same_steps_are_taken": ("accumulated", "by_labels", "clipped", "filled", "same", "sloped"),
    },
    "convert/test_optax.py": {
        "test_a_chain_is_filled_and_comes_back": ("accumulate", "clip"),
        "test_a_chain_that_went_on_in_jax_gives_pytorch_its_moments": ("accumulate",),
        "test_plain_orbax_restores_the_users_own_chain_by_its_template": (
            "['--optimizer', 'mine_of_optax:named']",
            "['--optimizer', 'mine_of_optax:tx']",
        ),
    },
    "convert/test_others.py": {
        "test_it_comes_back_bit_for_bit": ("fsdp2",),
    },
    "convert/test_sealing.py": {
        "test_every_flipped_byte_is_noticed": ("dcp", "orbax"),
    },
    "corpus/test_clean.py": {
        "test_it_is_not_called_broken": (
            "accelerate_loop",
            "adam_by_hand",
            "ddpg",
            "dqn",
            "early_stopping",
            "frozen_record",
            "grain_iterator",
            "moco",
            "nnx_orbax_manager",
            "quickstart",
            "saves_by_the_clock",
            "saves_in_a_thread",
            "simclr",
            "stylegan_ada",
            "swapped_average",
        ),
        "test_without_the_tool_it_resumes_exactly": ("nnx_orbax_manager",),
    },
    "corpus/test_losers.py": {
        "test_it_is_red_and_named": (
            "averaged_array_named_y",
            "class_attribute_saved_and_never_loaded",
            "exported_model_json",
            "exported_model_npy",
            "float_that_is_saved_and_never_loaded",
            "integer_that_enters_the_last_step",
            "lost_deque",
            "lost_loss_scale",
            "off_by_one_i",
            "off_by_one_sel",
            "pointer_of_a_queue",
            "spectral_norm_u_reset",
            "state_of_equinox",
            "truncated_history",
        ),
    },
    "corpus/test_places.py": {
        "test_a_copy_that_is_saved_and_loaded_is_never_red": ("array_array", "generator_locals", "sqlite_in_memory"),
        "test_cases_that_were_wrong_once": (
            "environment-numpy-training",
            "floats_of_python-torch-training",
            "gradient_of_a_leaf-torch-training",
            "non_persistent_buffer-torch-nothing",
        ),
        "test_what_is_lost_is_red_or_listed": (
            "attribute_of_a_tensor-torch-file",
            "attribute_of_an_ndarray_subclass-numpy-return",
            "class_attribute-torch-file",
            "ctypes_array-numpy-nothing",
            "cycle-torch-file",
            "decimal_context-numpy-return",
            "descriptor-torch-nothing",
            "global_of_another_module-torch-training",
            "hidden_part_of_a_strided_view-numpy-nothing",
            "map_of_a_file-numpy-nothing",
            "nonlocal_cell-numpy-nothing",
            "ring-torch-file",
            "thread_subclass-numpy-return",
            "user_list-torch-training",
            "words_of_a_generator-torch-training",
        ),
    },
    "corpus/test_renamed.py": {
        "test_a_renamed_loop_trains_to_the_same_bits": ("jax_lessons-0", "jax_shapes-4"),
        "test_names_of_chance_change_no_verdict": ("jax_lessons-4", "torch_basics-5", "torch_language-3"),
    },
    "crash/test_crash_states.py": {
        "test_after_any_crash_of_a_save_the_old_or_the_new_checkpoint_is_gone_on_from": ("jax",),
        "test_after_any_crash_of_the_first_save_a_run_starts_over_or_goes_on_from_it": ("jax",),
        "test_after_any_crash_the_records_before_the_checkpoint_are_there": ("1-jax", "2-jax", "2-torch"),
    },
    "crash/test_planted_crashes.py": {
        "test_a_save_that_does_it_wrong_is_found_out": (
            "data_is_not_synced-jax",
            "pointer_is_not_synced-jax",
            "pointer_moves_before_the_checkpoint_is_there-jax",
            "renamed_before_it_is_sealed-jax",
        ),
        "test_the_record_copied_without_a_change_is_not_found_out": ("jax",),
    },
    "crash/test_tree_crashes.py": {
        "test_a_planted_crash_is_found": ("torch-rename first",),
    },
    "docs/test_project_files.py": {
        "test_the_site_is_built_and_what_is_wrong_in_a_docstring_or_page_fails_the_build": (
            "--None",
            "A guide-[A guide](missing.md)-missing.md",
            "Do it.-Do {py:fun}`it`.-py:fun",
        ),
    },
    "docs/test_schedules_page.py": {
        "test_the_record_is_what_is_measured": ("4",),
    },
    "docs/test_your_trainer.py": {
        "test_the_examples_hold_and_an_optimizer_that_is_not_loaded_is_named": ("nnx",),
    },
    "faults/live/test_catalog.py": {
        "test_bug_is_found_and_named": (
            "adam_step_reset",
            "adapter_rewrapped",
            "aux_counter_reset",
            "best_fn_evicts_latest",
            "best_metric_from_latest",
            "consumed_unit_rows_vs_queries",
            "donated_buffer_async",
            "dropout_hparam_not_reapplied",
            "ema_swap_saved_then_overwritten",
            "epoch_order_twice_or_skipped",
            "eval_mode_left_on",
            "fp8_extra_state_empty",
            "int_keys_become_str",
            "keep_all_deletes_all",
            "keras_seed_generator_lost",
            "last_not_found_restart",
            "latest_before_durable",
            "loader_restarts_at_zero",
            "master_feature_off_on_resume",
            "master_weights_random",
            "midepoch_extra_step",
            "missing_piece_defaults",
            "nonpersistent_buffer_garbage",
            "nonstrict_prefix_noop",
            "offset_read_before_load",
            "opt_identity_by_position_vs_name",
            "opt_state_cast_up",
            "opt_state_not_restored",
            "param_groups_alias_broken",
            "param_order_swap",
            "plateau_state",
            "rng_reuse_deflates_loss",
            "rng_stale_file_in_dir",
            "sampler_seed_ignored",
            "scaler_created_after_load",
            "sched_first_step_initial_lr",
            "sched_not_saved",
            "sched_recursive_vs_closed",
            "second_resume_counter_lost",
            "shuffle_window_flag_lost",
            "stage_remaining_zero",
            "step_added_twice",
            "stop_flag_lost",
            "tied_head_rebuilt",
            "topk_list_not_restored",
            "unfreeze_schedule_lost",
            "untied_head_force_tied",
            "worker_seed_replay",
        ),
        "test_clean_trainer_is_green_in_all_scenarios": ("train0",),
        "test_clean_variant_is_green": (
            "as batch_size_changed_offset",
            "as best_dropped_on_dir_change",
            "as horizon_changed",
            "as mixed_generation",
            "as untied_head_force_tied",
        ),
        "test_difference_of_policy_is_green": ("hparams_from_ckpt_win", "lr_advances_on_skipped_step"),
    },
    "faults/test_handover_faults.py": {
        "test_a_sound_handover_holds": ("path0", "path1"),
        "test_lost_slots_are_named": ("opt_identity_by_position_vs_name-path0",),
    },
    "faults/test_planted.py": {
        "test_clean_run_is_green": (
            "accumulation-jax",
            "batch norm-jax",
            "float16 with overflows-jax",
            "grain-jax",
            "grain-torch",
            "sgd-jax",
        ),
        "test_fault_is_red_and_named": (
            "aux_counter_reset-jax",
            "best_metric_from_latest-jax",
            "bn_stats_not_saved-jax",
            "dropout_hparam_not_reapplied-jax",
            "hparams_from_ckpt_win-jax",
            "int_keys_become_str-torch",
            "keras_seed_generator_lost-jax",
            "last_not_found_restart-jax",
            "master_rebuilt_from_bf16-jax",
            "nonpersistent_buffer_garbage-torch",
            "normalizer_stats_reset-jax",
            "opt_replace_discarded-jax",
            "opt_state_not_restored-jax",
            "optax_count_reinit-jax",
            "param_order_swap-jax",
            "pretrained_over_checkpoint-jax",
            "rank_data_state_collapsed-jax",
            "rng_not_saved-jax",
            "rng_stale_file_in_dir-jax",
            "scaler_not_saved-jax",
            "shuffle_window_flag_lost-jax",
            "skip_unit_grad_accum-jax",
            "split_rng_two_sources-jax",
            "tp_opt_reshard_wrong-jax",
            "untied_head_force_tied-torch",
        ),
    },
    "faults/test_scenarios.py": {
        "test_a_clean_run_holds_on_its_scenarios": ("torch-scenarios0",),
        "test_a_fault_of_one_scenario_is_found_there_and_named": (
            "again",
            "at-zero",
            "best",
            "epoch-end",
            "extend",
            "first-save",
            "mid-epoch",
            "off-validation",
            "older",
            "on-validation",
            "third",
        ),
    },
    "faults/test_storage_faults.py": {
        "test_a_piece_that_was_not_in_memory_when_its_checkpoint_was_sealed_stops_the_load": (
            "mixed_generation-jax",
            "rng_stale_file_in_dir-jax",
        ),
        "test_what_was_changed_behind_its_seal_is_refused_named_and_moved_aside": (
            "missing_piece_defaults-torch",
            "mixed_generation-jax",
            "mixed_generation-torch",
            "rng_stale_file_in_dir-jax",
        ),
    },
    "foreign/test_foreign_trainer.py": {
        "test_a_planted_fault_is_found_and_named": (
            "momentum lost-processes",
            "noise reseeded-here",
            "noise reseeded-processes",
            "position off by one-here",
            "position off by one-processes",
        ),
        "test_it_resumes_bitwise": ("processes",),
    },
    "formats/test_bounds.py": {
        "test_a_message_of_too_many_values_is_refused": ("a million integers", "a million keys"),
    },
    "formats/test_orbax_matrix.py": {
        "test_each_way_of_orbax_is_read_and_carried": ("keys", "nnx"),
    },
    "formats/test_write_orbax.py": {
        "test_many_small_arrays_share_files_and_plain_orbax_restores_each": ("standard",),
    },
    "formats/test_writers.py": {
        "test_the_library_of_the_format_reads_it_without_this_project": ("dcp", "safetensors", "torch.save"),
    },
    "hostile/test_catalogue.py": {
        "test_refused_by_name_or_proved_harmless": (
            "pickle-code-global-reduce",
            "pickle-code-inst",
            "pickle-code-posix-reduce",
            "pickle-code-stack-global",
            "scalars-empty-jax",
            "scalars-list-jax",
            "scalars-null-jax",
            "scalars-number-jax",
        ),
    },
    "hostile/test_damaged_files.py": {
        "test_blocks_of_a_file_exchanged_or_repeated_are_found": ("torch",),
    },
    "hostile/test_every_byte.py": {
        "test_a_flipped_bit_in_any_byte_is_found_and_blamed_on_its_file_and_leaves": (
            "jax-1-3",
            "jax-2-3",
            "torch-0-1",
        ),
        "test_without_the_digests_of_the_files_flipped_bits_are_silent": ("jax",),
    },
    "hostile/test_recovery.py": {
        "test_a_checkpoint_of_another_run_that_is_asked_for_is_an_error_and_stays_where_it_is": ("jax",),
        "test_a_whole_checkpoint_of_another_run_is_moved_aside_like_a_damaged_one": (
            "model-jax",
            "optimizer-jax",
            "seed-jax",
        ),
        "test_with_every_checkpoint_of_another_run_the_run_stops_and_leaves_them_where_they_are": ("jax",),
    },
    "jax_side/test_checkpoint.py": {
        "test_a_save_is_sealed_with_the_digest_of_every_leaf": STATES,
        "test_a_snapshot_holds_every_bit_in_whatever_blocks_and_takes_over_the_buffers_of_the_one_before": (
            "100",
            "20",
            "8",
        ),
        "test_damage_names_the_leaf_it_lies_in": STATES,
        "test_every_array_has_a_place": STATES,
        "test_training_on_beside_a_save_does_not_change_what_is_saved": (
            "loss scaler",
            "statistics and counters",
            "tied weights",
        ),
        "test_what_was_saved_comes_back_and_goes_on_bit_for_bit": STATES,
    },
    "jax_side/test_compiled.py": {
        "test_a_program_from_the_cache_gives_the_bits_of_one_compiled_anew": ("cnn-digits",),
    },
    "jax_side/test_differences.py": {
        "test_dropout_keeps_the_same_elements_on_both_sides": (
            "shape0-0.1",
            "shape1-0.1",
            "shape1-0.5",
            "shape1-0.9",
        ),
        "test_optax_s_bias_correction_is_off_in_float32_and_ours_is_not": ("0.999",),
        "test_our_bias_correction_equals_torch_s_in_float64": ("0.95",),
        "test_the_loss_of_low_precision_logits_is_computed_in_float32_on_both_sides": ("bfloat16",),
        "test_torch_clips_with_an_epsilon_that_optax_has_not": ("0.02",),
        "test_whole_models_agree_in_float64": (
            "cnn-digits-extra0",
            "cnn-digits-extra1",
            "gpt-text-extra0",
            "gpt-text-extra1",
        ),
    },
    "jax_side/test_optimizer.py": {
        "test_both_sides_take_the_same_steps_in_float64": (
            "adam-all-clip_norm=0",
            "adam-all-clip_norm=1",
            "adamw, betas-matrices-clip_norm=1",
        ),
    },
    "jax_side/test_orbax_alone.py": {
        "test_orbax_alone_restores_every_leaf_of_every_item": (
            "adam",
            "loss scaler",
            "sgd without momentum",
            "statistics and counters",
            "tied weights",
            "two groups",
        ),
    },
    "jax_side/test_programs.py": {
        "test_a_run_that_computes_something_else_has_its_own": ("clip_norm",),
        "test_shared_programs_give_the_bits_of_a_trainer_s_own": ("mlp-digits",),
    },
    "jax_side/test_scan_loop.py": {
        "test_a_scan_with_overflows_is_the_loop_with_overflows": ("cnn-digits", "gpt-text", "mlp-digits"),
        "test_dropout_resumes_bitwise": ("shared",),
        "test_native_dropout_trains_and_its_stream_moves": ("gpt-text",),
        "test_scans_of_any_length_and_the_loop_are_bitwise_equal": ("cnn-digits", "gpt-text", "mlp-digits"),
    },
    "jax_side/test_schedules.py": {
        "test_rates_are_those_of_the_host_to_the_bit_in_float64_and_rounded_once_in_float32": ("constant",),
    },
    "jax_side/test_sharding.py": {
        "test_a_split_state_trains_saves_and_restores_as_on_one_device": ("gpt-text-scan",),
    },
    "jax_side/test_topology.py": {
        "test_any_number_of_devices_and_any_change_between_them_stays_inside_the_envelope": (
            "cnn-digits",
            "gpt-text",
        ),
    },
    "jax_side/test_whole.py": {
        "test_it_is_bit_for_bit_what_orbax_reads": (
            "loss scaler-1000",
            "loss scaler-16777216",
            "native dropout-1000",
            "native dropout-16777216",
            "sgd without momentum-1000",
            "sgd without momentum-16777216",
            "statistics and counters-1000",
            "statistics and counters-16777216",
            "tied weights-1000",
            "tied weights-16777216",
            "two groups-1000",
            "two groups-16777216",
        ),
    },
    "live/test_bad_input.py": {
        "test_a_function_that_never_ends_is_an_error": ("calls-marks", "calls-steps", "generator-marks"),
        "test_a_run_that_never_ends_once_it_is_resumed_is_broken": ("True",),
    },
    "live/test_beginnings_last.py": {
        "test_a_number_of_another_type_is_named_behind_the_feed_that_was_lost": ("float64",),
    },
    "live/test_beyond_the_run.py": {
        "test_a_lost_count_that_decides_beyond_the_run_is_lost": (
            "by_a_call",
            "by_a_guard",
            "by_an_element",
            "by_any",
            "by_division",
            "by_get",
            "by_match",
            "by_table",
        ),
    },
    "live/test_causes_first.py": {
        "test_what_mostly_means_nothing_is_named_where_nothing_else_differs": ("horizon-horizon",),
        "test_what_was_lost_comes_first": ("leaves_things_behind-given0-phase", "teaches-given2-teach"),
    },
    "live/test_choices.py": {
        "test_a_count_of_the_process_is_listed_though_what_is_trained_is_picked_by_its_name": (
            "in_a_branch",
            "in_a_method",
            "in_a_minimum",
            "in_a_variable",
            "in_expression",
        ),
        "test_a_flag_decides_by_what_it_was_set_to": ("variable",),
        "test_a_lost_count_that_picks_what_is_trained_by_only_beyond_the_run_is_lost": (
            "in_a_branch",
            "in_a_method",
            "in_a_minimum",
            "in_a_variable",
            "in_expression",
        ),
    },
    "live/test_clean_torch.py": {
        "test_a_clean_trainer_holds_at_every_stop": (
            "accumulating-11-quick",
            "accumulating-13-all",
            "accumulating-7-all",
            "class_style-11-quick",
            "class_style-13-all",
            "class_style-14-third",
            "class_style-7-all",
            "nanogpt_style-11-quick",
            "nanogpt_style-13-all",
            "nanogpt_style-14-third",
            "nanogpt_style-7-all",
            "prefetched-11-quick",
            "prefetched-13-all",
            "prefetched-14-third",
            "prefetched-7-all",
        ),
        "test_a_clean_trainer_holds_in_processes_that_are_killed": ("class_style",),
    },
    "live/test_closed_state.py": {
        "test_a_count_that_would_lower_the_rate_is_lost": ("False",),
        "test_numbers_of_a_process_that_decide_about_themselves_are_no_loss": ("shown",),
    },
    "live/test_deep_trainer.py": {
        "test_what_it_loses_is_named_by_the_path_in_its_own_objects": (
            "batch",
            "callbacks",
            "model",
            "optimizer",
            "schedule",
            "shuffle",
            "streams",
        ),
    },
    "live/test_delegated.py": {
        "test_a_log_with_lines_twice_or_begun_anew_is_no_loss": ("a",),
        "test_rows_that_a_file_lacks_are_red_whatever_it_is_called": (
            "rows-broken-curve.dat",
            "rows-broken-losses.txt",
            "rows-broken-rows",
        ),
    },
    "live/test_endings.py": {
        "test_a_resumed_run_that_calls_sys_exit_is_judged": ("3", "None"),
        "test_one_signal_ends_a_check_of_trainers_that_are_deadlocked": ("SIGKILL", "SIGTERM"),
        "test_what_is_no_file_in_the_folder_is_no_error": ("device", "pipe"),
    },
    "live/test_entry.py": {
        "test_a_batch_that_is_not_ready_yet_is_no_difference": ("<lambda>0",),
        "test_what_was_lost_comes_before_what_the_first_step_made_of_it": (
            "buffer-calls",
            "buffer-yields",
            "moments-calls",
            "noise-calls",
            "rows-calls",
        ),
    },
    "live/test_error_bounds.py": {
        "test_a_lost_count_that_goes_to_its_bound_is_named": ("assert-budget", "raise-budget"),
    },
    "live/test_every_byte.py": {
        "test_a_difference_anywhere_in_a_file_is_seen": (
            "behind the 64 MiB that are decoded",
            "the last of many rows",
        ),
        "test_an_average_that_only_shards_of_dcp_hold_is_not_lost_in_silence": ("ema",),
    },
    "live/test_except_clauses.py": {
        "test_a_number_that_a_clause_keeps_is_lost": ("keeps_a_limit",),
    },
    "live/test_finite.py": {
        "test_parameters_of_a_module_that_are_nan_are_no_pass": ("dtype0",),
    },
    "live/test_forks.py": {
        "test_what_a_module_seeds_at_its_top_stays_seeded": ("process",),
    },
    "live/test_further_shapes.py": {
        "test_a_last_save_takes_its_place_in_a_rotation_when_a_run_is_extended": ("99",),
    },
    "live/test_in_checkpoints.py": {
        "test_what_was_saved_is_named_first": ("by_rows-given1-q-13", "through_a_workspace-given0-m-13"),
    },
    "live/test_jax_adapters.py": {
        "test_a_clean_trainer_holds": (
            "train_folded-11",
            "train_folded-5",
            "train_folded-8",
            "train_folded-9",
            "train_grain-11",
            "train_grain-12",
            "train_grain-5",
            "train_grain-8",
            "train_grain-9",
            "train_linen-11",
            "train_linen-12",
            "train_linen-5",
            "train_linen-8",
            "train_linen-9",
            "train_nnx-11",
            "train_nnx-12",
            "train_nnx-5",
            "train_nnx-8",
            "train_nnx-9",
            "train_raw-11",
            "train_raw-12",
            "train_raw-5",
            "train_raw-8",
            "train_raw-9",
        ),
        "test_a_planted_fault_is_found_and_named_first": (
            "train_folded-seed_changed-rng.key",
            "train_grain-iterator_lost-data.position",
            "train_linen-average_lost-ema",
            "train_linen-count_lost-optimizer.step",
            "train_linen-key_lost-rng.state.dropout_key",
            "train_linen-optimizer_lost-schedule.step",
            "train_linen-params_rounded-model.params",
            "train_linen-schedule_lost-schedule.step",
            "train_linen-second_moment_lost-optimizer.second_moment",
            "train_linen-statistics_lost-model.buffers",
            "train_linen-step_off_by_one-counters.step",
            "train_nnx-count_lost-schedule.step",
            "train_nnx-counters_as_floats-schedule.step",
            "train_nnx-data_from_zero-data.position",
            "train_nnx-key_not_restored-rng.model.drop.rngs",
            "train_nnx-mode_left-model.mode",
            "train_nnx-moments_rounded-optimizer.first_moment",
            "train_nnx-optimizer_lost-schedule.step",
            "train_nnx-optimizer_step_lost-optimizer.step",
            "train_nnx-params_rounded-model.params",
            "train_nnx-replace_discarded-model.params",
            "train_nnx-schedule_of_the_rest-schedule.decay_steps",
            "train_nnx-statistics_lost-model.buffers",
            "train_nnx-weights_lost-model.params",
            "train_raw-key_lost-rng.key",
            "train_raw-momentum_lost-optimizer.momentum",
            "train_raw-opt_state_lost-schedule.step",
            "train_raw-params_lost-model.params",
            "train_raw-params_rounded-model.params",
            "train_raw-perm_lost-data.position",
            "train_raw-position_lost-data.position",
            "train_raw-rng_lost-rng.rng",
            "train_raw-schedule_lost-schedule.step",
            "train_raw-step_off_by_one-counters.step",
        ),
    },
    "live/test_kept_files.py": {
        "test_what_is_kept_otherwise_is_named": (
            "best_by_latest-best-best.npz",
            "best_missed-best-best.npz",
            "wrong_best-best-16",
        ),
    },
    "live/test_large_containers.py": {
        "test_a_vocabulary_is_judged_and_its_element_named": ("dict", "list"),
        "test_weights_in_them_are_trained": ("2500-True",),
    },
    "live/test_launchers.py": {
        "test_a_launcher_that_starts_others_or_none_is_refused": ("launcher0-rank \\\\d of 3, and 2 processes",),
    },
    "live/test_left_behind.py": {
        "test_the_same_loop_without_a_loss_holds": (
            "",
            "bytes",
            "csv",
            "history",
            "json",
            "npy",
            "pickle",
            "start",
            "text",
        ),
        "test_what_reaches_a_file_or_the_returned_value_is_a_loss": ("csv", "pickle", "returned"),
    },
    "live/test_left_in_containers.py": {
        "test_rows_that_were_lost_are_red_and_times_are_not": (
            "objects",
            "tar",
            "timed_name",
            "two_arrays",
            "two_pickles",
        ),
    },
    "live/test_left_variables.py": {
        "test_a_loop_that_resumes_exactly_holds": (
            "distills_under_a_condition",
            "explores_less_and_less",
            "leaves_a_loop_variable",
        ),
        "test_its_fault_is_found": ("distills_under_a_condition", "explores_less_and_less", "leaves_a_loop_variable"),
    },
    "live/test_links_and_empty_files.py": {
        "test_what_a_run_leaves": ("True-links", "True-marks"),
    },
    "live/test_loads.py": {
        "test_a_count_of_an_object_that_heals_was_lost_all_the_same": ("best",),
        "test_what_is_set_before_it_is_read_is_listed": ("process",),
    },
    "live/test_loops_of_others.py": {
        "test_a_clean_loop_resumes": ("epochs", "events"),
        "test_what_a_loop_loses_is_named": (
            "epochs-average",
            "epochs-frozen",
            "epochs-generator",
            "events-noise",
            "events-penalty",
            "memmap-file",
            "memmap-groups",
        ),
    },
    "live/test_made_ahead.py": {
        "test_what_is_not_made_again_is_named": ("by_tasks-queue",),
        "test_what_was_lost_comes_before_what_is_made_again": ("by_calls-t", "by_tasks-mean", "by_tasks-rate"),
    },
    "live/test_made_from_lists.py": {
        "test_the_list_comes_before_what_is_made_from_it": ("train-rate1", "train-taken1"),
    },
    "live/test_made_on_demand.py": {
        "test_a_best_value_is_lost_though_the_first_step_improves_on_it_in_both_runs": ("object",),
        "test_a_flag_by_which_work_is_done_once_more_is_lost_where_it_decides_more": ("Now-True", "Zot-False"),
        "test_what_it_is_made_of_is_lost_and_named": ("train-b", "train-data.", "train-world."),
        "test_what_the_first_step_makes_and_takes_is_no_loss": ("train0", "train2"),
        "test_what_the_step_need_not_have_taken_is_lost": ("compared", "unused"),
    },
    "live/test_metrics_of_frameworks.py": {
        "test_a_lost_metric_is_named_before_what_it_is_written_into": ("trainer-metrics",),
    },
    "live/test_misses.py": {
        "test_a_best_metric_that_the_next_evaluation_replaces_was_lost_all_the_same": ("best",),
        "test_what_was_lost_or_changed_leads_and_what_was_left_over_does_not": ("", "clip", "penalty"),
    },
    "live/test_named_before_files.py": {
        "test_a_list_that_a_file_shows_is_named_before_gradients": ("a",),
        "test_a_schedule_whose_phase_is_over_is_named_before_the_seed_of_a_loader": ("late",),
        "test_what_only_a_save_evaluates_is_named_behind_an_optimizer_and_a_mode_that_counts_is_not": (
            "mode",
            "optimizer",
            "seed",
        ),
    },
    "live/test_named_first.py": {
        "test_what_a_generator_has_not_set_yet_is_named_behind_a_lost_list_of_the_past": ("buckets-first1",),
    },
    "live/test_names_of_files.py": {
        "test_a_lost_queue_leaves_files_and_a_folder_or_name_of_its_own_is_no_loss": (
            "options0",
            "options2",
            "options3",
        ),
    },
    "live/test_noisy.py": {
        "test_a_clean_trainer_holds_and_says_by_what": ("torch",),
        "test_a_trainer_without_a_framework_is_judged_alike": ("moments_late", "moments_lost"),
        "test_noise_that_would_hide_a_step_is_no_pass": ("",),
        "test_what_no_state_shows_is_found_by_the_envelope": (
            "gradient_late",
            "moments_late",
            "rate_late",
            "update_lost",
        ),
        "test_what_was_lost_is_named_bit_by_bit_where_it_was_restored": (
            "lr_reset-schedule.lr",
            "moments_lost-optimizer.",
            "optimizer_rebuilt-optimizer.",
            "rng_lost-rng",
            "step_lost-optimizer.step",
            "weights_narrowed-model.params",
        ),
    },
    "live/test_nothing_follows.py": {
        "test_an_optimizer_that_a_later_step_takes_is_lost": ("in every step",),
        "test_what_a_loop_behind_yield_from_was_loaded_from_or_keeps_by_length_is_no_loss": ("loaded",),
    },
    "live/test_orders_of_keys.py": {
        "test_an_order_that_is_taken_is_named": ("of_turns-o.q",),
    },
    "live/test_own_meters.py": {
        "test_an_event_that_is_recorded_once_more_is_a_loss_of_its_flag": ("element",),
        "test_what_a_validation_changes_on_its_way_is_lost_beside_a_plateau": ("counts",),
    },
    "live/test_parted_ties.py": {
        "test_the_tie_is_named_at_the_resume": ("arrays-together-three.p",),
    },
    "live/test_pickled_files.py": {
        "test_a_file_of_torch_with_numbers_of_numpy_is_compared_by_what_it_holds": ("-holds",),
        "test_an_estimator_is_compared_by_what_its_file_holds": ("0-t_-broken", "3-t_-broken"),
    },
    "live/test_plain_numbers.py": {
        "test_they_are_judged_as_others_are": ("linear",),
    },
    "live/test_ranks.py": {
        "test_what_one_rank_loses_is_named_with_its_rank": ("another rank's shard",),
    },
    "live/test_read_ahead.py": {
        "test_a_block_that_is_read_ahead_is_no_loss": ("Reader",),
        "test_rows_of_another_place_are_lost": ("Front", "Two"),
        "test_rows_that_are_read_ahead_are_no_loss": (
            "kill-Front",
            "kill-Pairs",
            "kill-R",
            "kill-Rows",
            "kill-Two",
            "third-Front",
            "third-Pairs",
            "third-R",
            "third-Two",
        ),
        "test_what_is_lost_beside_rows_is_named_first": ("place-names1",),
    },
    "live/test_read_before_written.py": {
        "test_who_is_first": (
            "flushes-given0-delta",
            "keeps_figures-given1-last",
            "normalises-given3-count",
            "seeds_each_step-given2-at",
        ),
    },
    "live/test_records_in_files.py": {
        "test_one_record_that_is_written_twice_is_no_loss": ("array", "json_line", "packed", "pickled"),
        "test_steps_made_again_write_their_records_again": ("array", "json_line", "packed", "row", "zipped"),
    },
    "live/test_red_torch.py": {
        "test_a_fault_is_found_and_named": (
            "best",
            "constructor",
            "data",
            "draw",
            "mode",
            "off by one",
            "rng",
            "rounding save",
            "scheduler",
        ),
        "test_of_two_faults_at_once_one_is_named_first": (
            "best-data",
            "best-mode",
            "best-rng",
            "constructor-best",
            "constructor-draw",
            "constructor-rng",
            "data-draw",
            "off by one-best",
            "off by one-data",
            "off by one-rng",
            "optimizer-off by one",
            "optimizer-rounding save",
            "scheduler-data",
        ),
        "test_what_a_single_run_shows_is_an_observation_until_its_region_is_declared": ("draw",),
    },
    "live/test_renewed.py": {
        "test_what_other_saves_come_before_is_a_loss": ("1-Qux", "1-Search", "2-Search", "3-Qux", "3-Search"),
    },
    "live/test_saves_on_their_way.py": {
        "test_a_file_that_gets_its_name_some_steps_later_is_the_newest": ("1", "3"),
    },
    "live/test_set_at_start.py": {
        "test_it_is_listed_whatever_it_is_called": (
            "1-",
            "1-line",
            "1-list",
            "1-table",
            "2-",
            "2-array",
            "2-line",
            "2-list",
            "2-table",
        ),
        "test_what_was_lost_is_one_whatever_it_is_called": (
            "1--speed",
            "1-list-speed",
            "1-steps-",
            "1-tally-tallies",
            "2-list-speed",
            "2-steps-",
            "2-tally-tallies",
        ),
    },
    "live/test_shapes_of_others.py": {
        "test_a_cache_and_its_counts_are_made_again": ("of_dict", "of_nan", "of_none"),
        "test_a_cache_whose_values_depend_on_when_they_were_made_is_lost": ("of_mask", "of_nan", "of_none"),
        "test_a_meter_is_listed_though_what_decides_has_its_names": ("False",),
        "test_exact_and_complex_numbers_are_trained": ("<lambda>0", "Fraction"),
        "test_what_decides_is_lost_though_a_meter_has_its_names": ("best-False", "count-False", "count-True"),
        "test_what_is_lost_beside_a_cache_is_named_before_it": ("of_dict", "of_nan", "of_none"),
        "test_whole_numbers_are_taken_for_what_is_trained_and_that_is_said": ("array",),
    },
    "live/test_sharded_trainer.py": {
        "test_a_sharded_loop": ("clean", "plain"),
    },
    "live/test_tables_as_checkpoints.py": {
        "test_a_checkpoint_that_is_the_last_line_of_a_table_is_judged": ("jsonl", "sqlite"),
    },
    "live/test_taken_by_key.py": {
        "test_what_was_lost_comes_before_a_table_of_what_steps_put_there": ("feed-named1-by_key",),
    },
    "live/test_threads_of_trainers.py": {
        "test_a_queue_that_no_thread_fills_is_state_and_how_often_it_was_filled_is_not": ("False",),
        "test_how_far_a_thread_of_a_class_of_ones_own_has_come_is_no_loss": (
            "-Producer",
            "-Tzu",
            "feed-Producer",
            "m-Producer",
            "m-Tzu",
        ),
    },
    "live/test_untold_state.py": {
        "test_what_was_lost_is_named_by_its_path": (
            "closure-kept.rate",
            "own scaler-scaling.",
            "slow weights-slow[0]",
        ),
    },
    "live/test_unwritten_memory.py": {
        "test_a_buffer_that_is_filled_row_by_row_is_clean": ("True",),
        "test_what_is_lost_of_it_is_named": ("replay-held.seen",),
    },
    "live/test_weak_collections.py": {
        "test_what_was_kept_for_an_object_is_named_by_its_path": ("quiet-Rate.quiet",),
    },
    "live/test_written_again.py": {
        "test_files_that_are_written_again_as_they_were_are_no_loss": ("dict", "list"),
        "test_the_note_is_named_before_the_files": ("dict", "list"),
    },
    "optim/test_bits.py": {
        "test_bfloat16_has_torchs_bits": ("AdamW", "NAdam"),
        "test_counts_and_scalars_follow_64_bit_types_as_torchs_follow_its_default_dtype": ("True-default0",),
        "test_float32_has_torchs_bits_under_jit_and_in_a_scan": (
            "ASGD",
            "Adafactor",
            "AdamW",
            "Adamax",
            "NAdam",
            "RAdam",
            "RMSprop",
            "Rprop",
            "SGD",
        ),
        "test_muon_is_torchs_under_jit_in_its_own_bfloat16": ("{'lr': 0.01}",),
    },
    "optim/test_command.py": {
        "test_the_figures_are_those_of_the_arguments_that_were_given": (
            "Adam lr=0.01 weight_decay=0.1",
            "NAdam lr=0.01 weight_decay=0.1 decoupled_weight_decay=True",
            "RMSprop centered=True",
            "SGD lr=0.1 momentum=0.9 nesterov=True",
        ),
    },
    "optim/test_edges.py": {
        "test_a_row_is_torchs_in_every_optimizer": ("plain", "unfrozen late", "zero gradients"),
    },
    "optim/test_equivalence.py": {
        "test_a_figure_is_measured_again": ("NAdam",),
    },
    "optim/test_exact.py": {
        "test_clipping_and_a_moving_rate_take_torchs_steps": ("value",),
        "test_scalars_follow_torchs_default_dtype": ("ASGD",),
        "test_the_defaults_take_torchs_steps": ("Adafactor", "Muon", "NAdam"),
    },
    "optim/test_muon.py": {
        "test_another_iteration_is_outside": ("fault0", "fault1"),
    },
    "optim/test_no_numbers.py": {
        "test_what_is_no_number_goes_where_it_goes_in_torch": (
            "Adafactor-False-a NaN",
            "Adafactor-True-a NaN",
            "RMSprop-False-a NaN",
            "Rprop-False-a NaN",
        ),
    },
    "optim/test_planted.py": {
        "test_without_a_fault_nothing_differs": ("Rprop",),
    },
    "optim/test_resume.py": {
        "test_a_fault_of_the_loop_is_found_and_named": (
            "ClippedTooEarly-gradients",
            "NeverUnscaled-gradients",
            "RateOfTheNextStep-optimizer.groups",
            "RateOfUpdates-schedule.groups",
            "UpdatedInSpiteOfAnOverflow-scaler.skipped",
        ),
        "test_a_run_is_handed_over_to_jax_and_back_without_a_difference": (
            "ASGD-plateau-float64",
            "Adadelta-one-cycle-float64",
            "Adafactor-plateau-rounded to float16",
            "Adagrad-constant-rounded to float16",
            "Adam-constant-rounded to float16",
            "AdamW-one-cycle-float64",
            "Adamax-plateau-rounded to float16",
            "Muon-constant-float64",
            "NAdam-one-cycle-rounded to float16",
            "RAdam-plateau-float64",
            "RMSprop-constant-float64",
            "Rprop-one-cycle-rounded to float16",
        ),
        "test_a_run_is_handed_over_to_pytorch_and_back_without_a_difference": (
            "Adafactor-constant-rounded to float16",
        ),
        "test_a_run_that_was_stopped_in_jax_continues_bitwise": (
            "Adafactor-one-cycle-float16",
            "Lion-plateau-float16",
            "Muon-plateau-float64",
            "NAdam-constant-float64",
            "Rprop-constant-float16",
        ),
    },
    "optim/test_state.py": {
        "test_a_state_dict_goes_to_optax_and_back_bit_for_bit_and_training_goes_on": (
            "Adafactor-torch.float32",
            "Muon-torch.float32",
        ),
    },
    "parity/test_background.py": {
        "test_saves_that_come_faster_than_they_are_written_have_the_priority_of_the_loop": ("jax",),
    },
    "parity/test_compare.py": {
        "test_checkpoints_of_one_state_have_equal_leaves_on_both_sides": (
            "gpt-text-bfloat16",
            "gpt-text-float32",
            "gpt-text-float64",
        ),
    },
    "parity/test_outside.py": {
        "test_a_shared_piece_is_that_of_an_implementation_from_outside": ("draws of the start", "masks"),
    },
    "parity/test_reading.py": {
        "test_it_reads_and_seeks_as_a_file_does": ("1",),
    },
    "parity/test_seal.py": {
        "test_every_changed_byte_is_refused": ("schema 2",),
    },
    "parity/test_sizes.py": {
        "test_what_cannot_fit_names_the_field_what_it_needs_and_what_there_is": (
            "gpt-text-texts5-model.layers-parameters and optimizer state",
        ),
    },
    "parity/test_threefry.py": {
        "test_bits_of_a_shape_are_the_flat_bits_reshaped": ("shape2",),
    },
    "parity/test_together.py": {
        "test_all_hear_what_one_heard_and_share_what_the_first_says": ("-heard0", "save-heard2"),
        "test_when_one_fails_all_end_with_its_code_and_name_it_in_one_line": ("1", "2"),
        "test_when_one_is_killed_all_end_and_name_it_in_one_line": ("1", "2"),
    },
    "parity/test_topology.py": {
        "test_gradients_that_a_mesh_makes_larger_part_the_curves": ("2.0",),
    },
    "parity/test_verify.py": {
        "test_an_array_is_verified_in_pieces_and_every_bit_of_it_counts": ("kernel",),
    },
    "parity/test_written_before.py": {
        "test_a_run_continues_as_if_it_had_never_stopped": ("jax-float32", "jax-float64"),
    },
    "plugin/test_checks.py": {
        "test_a_function_that_cannot_be_judged_is_one_error_without_frames_of_the_suite": ("long", "native"),
    },
    "ports/test_causes.py": {
        "test_a_fault_has_its_cause_and_no_other": ("dropout scaling", "padding not counted", "transposed weight"),
    },
    "ports/test_corpus.py": {
        "test_the_command_says_what_the_table_says": (
            "gpt, PyTorch, separate projections, AdamW by hand",
            "llama, PyTorch, fused, complex turns",
        ),
        "test_the_table_says_where_two_trainers_part": ("llama, PyTorch, fused, complex turns",),
    },
    "ports/test_dropouts.py": {
        "test_equal_places_and_rates_hold_and_are_said_to_be_off": ("nnx",),
    },
    "ports/test_equinox.py": {
        "test_what_is_planted_parts_at_its_stage": ("update-change1",),
    },
    "ports/test_equinox_state.py": {
        "test_running_statistics_are_mapped_and_proven": ("Net-batch",),
        "test_where_looks_at_stateful_modules": (
            "change0-holds-calls of modules compared",
            "change1-broken-eps 1e-05 here, epsilon 0.0001 there",
        ),
    },
    "ports/test_frozen.py": {
        "test_a_teacher_that_the_loss_stops_is_frozen_and_one_that_is_trained_parts_at_the_update": ("True-holds",),
    },
    "ports/test_handover.py": {
        "test_what_the_conversion_loses_is_named": ("all", "count", "e", "m", "p", "transpose"),
        "test_what_the_way_back_loses_is_named": ("e", "m", "v"),
    },
    "ports/test_handover_command.py": {
        "test_what_the_conversion_loses_is_named": ("v",),
    },
    "ports/test_heads_between.py": {
        "test_they_are_told_and_lead_back": ("6-3-4-True", "8-2-4-False", "8-2-4-True"),
    },
    "ports/test_libraries.py": {
        "test_the_row_of_a_padding_gets_no_gradient_in_pytorch": ("True-holds",),
    },
    "ports/test_linen_pairs.py": {
        "test_a_module_of_linen_with_its_variables_keeps_them": ("built",),
    },
    "ports/test_loops.py": {
        "test_what_a_conversion_drops_is_named_in_either_direction": (
            "optax-torch-count",
            "optax-torch-schedule",
            "torch-nnx-exp_avg",
            "torch-nnx-schedule",
        ),
        "test_what_a_loop_of_either_side_does_not_save_is_named": (
            "nnx-optimizer-jax does not resume exactly: schedule.step, state.optimizer.opt_state[1][2].count",
            "optax-opt_state-jax does not resume exactly: schedule.step, state.opt_state[1][2].count",
            "optax-params-jax does not resume exactly: model.params",
            "torch-optimizer-torch does not resume exactly: optimizer.step",
        ),
    },
    "ports/test_losses_of_gradients.py": {
        "test_the_place_in_such_a_loss_is_named_and_a_right_one_holds": ("changed0-", "changed1-10 here"),
    },
    "ports/test_nearer.py": {
        "test_leaves_behind_a_fault_are_paired_in_the_order_of_use": ("names0",),
        "test_leaves_of_one_shape_are_paired_so_that_both_do_most_alike": ("names0", "names1"),
    },
    "ports/test_nearest_maps.py": {
        "test_a_change_that_another_map_might_do_proves_none": (
            "cause4",
            "layout: the output of matmul as it is here, axes 0 and 1 exchanged there",
            "order: mul before add here, after it there",
        ),
        "test_a_change_that_makes_both_equal_proves_the_likeliest_map": ("left out: mul is applied here, not there",),
    },
    "ports/test_nearest_plans.py": {
        "test_the_parts_of_fused_leaves_are_those_that_are_used_together": ("names0", "names2"),
    },
    "ports/test_placed.py": {
        "test_what_the_one_that_takes_over_does_not_read_is_named": ("train_restarted-checkpoint.restore",),
    },
    "ports/test_port.py": {
        "test_each_stage_finds_what_is_planted_there_and_names_it": ("biased", "horizon", "rate late"),
    },
    "ports/test_precision.py": {
        "test_a_fault_beyond_the_envelope_is_broken_at_that_precision_too": ("rate-float32",),
        "test_what_float64_shows_and_the_envelope_hides_is_said_to_be_hidden": ("clip epsilon", "decay", "smoothing"),
    },
    "ports/test_program_causes.py": {
        "test_both_ends_of_the_edges_are_exchanged_in_each_layer": ("3",),
        "test_two_changes_are_named_together": ("number+variance-words1", "order+number-words2"),
    },
    "ports/test_projections.py": {
        "test_a_projection_of_both_hides_nothing": (
            "change0-learning rate of the first update-<lambda>0",
            "change0-learning rate of the first update-<lambda>1",
        ),
    },
    "ports/test_repeated_lines.py": {
        "test_what_is_done_otherwise_each_time_is_one_change": ("factor-words2-6", "parts-words0-2"),
    },
    "ports/test_reread.py": {
        "test_pairs_of_halves_and_of_neighbours_are_told": ("True",),
    },
    "ports/test_rotary_differences.py": {
        "test_a_rotary_on_a_part_of_a_head_is_named": (
            "port-the numbers 0 to 5 of the 8 of a head, in pairs of neighbours",
            "port-the numbers 4 to 7 of the 8 of a head, in pairs of numbers 2 apart",
        ),
    },
    "ports/test_schedule_fits.py": {
        "test_a_schedule_is_told_whatever_the_optimizer_is": ("nadam-settings0",),
    },
    "ports/test_small_values.py": {
        "test_another_bound_parts_where_it_holds": ("of the sum",),
    },
    "ports/test_stacked_maps.py": {
        "test_layers_are_paired_one_by_one": (
            "3-abcde",
            "3-dacbe",
            "3-qvkog",
            "3-zyxwv",
            "5-abcde",
            "5-dacbe",
            "5-qvkog",
        ),
    },
    "ports/test_stated_numbers.py": {
        "test_a_number_that_the_other_states_is_told": (
            "500000.0-6-10000 here (test_stated_numbers.py:24), 500000 there",
        ),
    },
    "ports/test_stops.py": {
        "test_a_stop_that_the_port_alone_has_is_told_with_its_line": ("_twice",),
        "test_a_stop_that_the_port_has_not_is_told_with_its_line": ("_twice",),
        "test_where_both_stop_alike_nothing_is_told": ("_twice",),
    },
    "ports/test_sums.py": {
        "test_a_module_that_no_output_can_follow_and_leaves_of_a_sum_hide_no_fault": ("0.0-holds",),
    },
    "ports/test_tables_of_numbers.py": {
        "test_numbers_of_a_table_are_told": (
            "table1-weights1-21 numbers 1, 0.999, 0.997166 to 0.621671: those of a 1 place later",
            "table2-weights2-20 numbers 1, 0.999, 0.997166 to 0.661353: those of a 1 place later",
        ),
    },
    "ports/test_twins.py": {
        "test_a_port_with_other_names_layouts_and_sums_trains_alike": ("train_narrow-float32",),
        "test_an_envelope_of_a_run_that_diverged_when_nudged_judges_nothing": ("no loss",),
        "test_below_float64_every_fault_is_found": FAULTS_OF_PORTS,
        "test_every_fault_of_a_port_is_found_and_its_component_comes_first": FAULTS_OF_PORTS,
        "test_noise_is_measured_until_it_decides": ("float32, another", "float64"),
        "test_what_ports_to_nnx_get_wrong_is_named": ("beta2", "decay"),
    },
    "ports/test_unhidden.py": {
        "test_a_mask_that_is_not_applied_between_streams_is_named": ("_filled-ones",),
    },
    "ports/test_update_causes.py": {
        "test_an_update_has_its_cause_and_no_other": ("rate of a group", "rate that looks like a correction"),
    },
    "ports/test_update_faults.py": {
        "test_a_fault_of_an_update_has_its_cause": (
            "adadelta: rate",
            "radam: a factor more",
            "radam: a rate as its factor",
            "radam: length",
            "radam: length of the next",
            "radam: no factor",
            "radam: no factor, decay",
            "radam: threshold",
            "rmsprop: centred",
            "rmsprop: not centred",
            "schedule: total counts the warm-up",
        ),
    },
    "ports/test_where.py": {
        "test_a_fault_is_found_where_it_is": ("gelu tanh", "layer norm epsilon", "no causal mask"),
    },
    "ports/test_whole_leaves.py": {
        "test_a_leaf_that_one_model_alone_uses_makes_them_two": ("True",),
        "test_all_ways_to_pair_whole_leaves_are_tried": ("False",),
        "test_keys_that_every_other_query_has_are_another_model": ("True",),
    },
    "ports/test_whose_casts.py": {
        "test_a_note_of_casts_says_whose_they_are": (
            "count-no line casts: a rate or a bias correction that is computed from a count in int32",
        ),
    },
    "ports/test_wide_calls.py": {
        "test_a_step_gives_what_float64_gives_and_rounds_as_it_is": ("asks",),
    },
    "processes/test_acceptance.py": {
        "test_a_five_epochs_saved_killed_and_five_more_have_a_continuous_validation_curve": ("jax",),
    },
    "processes/test_across.py": {
        "test_gpt_resumes_bitwise_in_bfloat16": ("jax",),
        "test_sgd_whose_first_step_overflows_starts_from_zero_momentum": ("jax",),
        "test_twins_agree_and_runs_can_be_handed_over": (
            "cnn-digits-bfloat16-50-overrides7",
            "cnn-digits-float64-1000-overrides1",
            "gpt-text-float16-20-overrides8",
            "gpt-text-float64-100-overrides2",
            "linear-regression-float32-50-overrides4",
            "linear-regression-float64-1000-overrides3",
            "mlp-digits-float32-100-overrides6",
            "mlp-digits-float64-1000-overrides0",
        ),
    },
    "processes/test_check_signals.py": {
        "test_a_resume_check_that_is_stopped_writes_what_it_judged_and_leaves_no_process": ("1",),
    },
    "processes/test_five_epochs.py": {
        "test_one_validation_after_a_handover_that_is_another_is_named": ("path1",),
    },
    "processes/test_installed_side.py": {
        "test_an_installed_side_passes_every_check_of_a_spec_in_every_precision": ("bfloat16", "float16", "float64"),
    },
    "processes/test_new_best.py": {
        "test_a_new_best_is_saved_where_intervals_do_not_meet": ("jax",),
        "test_it_survives_a_restart": ("jax",),
        "test_validations_more_often_than_saves_name_only_what_was_saved": ("jax",),
        "test_without_it_no_state_names_a_best_that_was_not_saved": ("jax",),
    },
    "processes/test_policy_check.py": {
        "test_a_side_holds_every_case_on_disk": ("jax",),
        "test_a_side_that_forgets_late_metrics_is_broken": ("jax",),
        "test_a_side_that_goes_back_beside_what_is_newer_is_broken": ("jax",),
        "test_a_side_that_keeps_by_a_wrong_rule_is_broken": (
            "a clock set back is waited for-time-jax",
            "a clock set back is waited for-time-torch",
            "best is evicted by age-age-jax",
            "every k-th is off by one-every-jax",
            "latest is evicted by metric-metric-jax",
        ),
    },
    "processes/test_resume_cases.py": {
        "test_a_trainer_that_quietly_starts_from_zero_is_red": ("jax",),
        "test_killed_run_resumes_bitwise": (
            "at an exact epoch end-jax",
            "at an exact epoch end-torch",
            "before the first checkpoint-jax",
            "inside an accumulation, in an epoch after the first-jax",
            "inside an accumulation, in an epoch after the first-torch",
            "right after a skipped fp16 step-jax",
            "right after a skipped fp16 step-torch",
        ),
        "test_killed_while_a_save_is_under_way_in_the_background": ("22",),
    },
    "processes/test_signals.py": {
        "test_a_save_that_hangs_is_given_up_at_the_deadline": ("jax-background", "torch-background", "torch-save"),
        "test_a_second_signal_ends_a_process_at_once": ("torch",),
        "test_a_terminal_that_closes_costs_nothing_but_the_lines": ("torch",),
        "test_signal_saves_and_exits_with_128_plus_it": ("jax-1", "jax-15", "jax-2", "torch-1", "torch-15"),
        "test_sigusr1_saves_and_training_goes_on_as_if_nothing_had_been": ("jax",),
    },
    "processes/test_together.py": {
        "test_a_save_that_fails_in_one_ends_both_and_both_say_why": (
            "the digests of process 1",
            "the seal of process 0",
        ),
        "test_a_signal_is_heard_while_a_process_waits_in_a_collective_for_one_that_is_stopped": ("1",),
        "test_a_signal_to_either_saves_the_same_step_in_both": ("1",),
        "test_when_one_is_killed_the_other_ends_and_says_which_in_one_line": ("1",),
    },
    "processes/test_trees_together.py": {
        "test_a_process_that_is_killed_in_a_save_leaves_nothing_and_nobody_hangs": ("torch-False",),
        "test_what_two_processes_saved_is_restored_bit_for_bit_by_two_and_by_one": ("torch",),
    },
    "remote/test_foreign.py": {
        "test_every_command_takes_it": ("dcp", "hugging-face", "megatron", "orbax"),
    },
    "remote/test_runs.py": {
        "test_a_run_goes_on_where_nothing_of_it_is_and_ends_as_one_that_nothing_stopped": ("gs",),
    },
    "remote/test_troubled_runs.py": {
        "test_a_single_request_fails_whichever_it_is": ("torn",),
        "test_all_requests_fail_from_one_on_until_the_next_start": ("503-20",),
    },
    "report/test_browser.py": {
        "test_a_planted_request_is_seen": ("image", "image of this machine", "style"),
        "test_the_page_renders_without_a_complaint_and_without_a_request": (
            "a hostile result",
            "every kind of check",
        ),
    },
    "report/test_layout.py": {
        "test_a_page_can_be_read_and_reached_at_every_width": (
            "benchmarks-1280-dark",
            "benchmarks-1280-light",
            "benchmarks-420-dark",
            "benchmarks-420-light",
            "benchmarks-800-light",
            "checks-1280-dark",
            "checks-1280-light",
            "checks-420-dark",
            "checks-420-light",
            "checks-800-dark",
            "checks-800-light",
        ),
        "test_planted_faintness_is_seen": ("faint text",),
        "test_the_two_lines_differ_by_dashes_and_in_every_kind_of_sight": ("dark",),
        "test_what_is_cut_is_seen": ("wider than the page",),
    },
    "report/test_terminal_widths.py": {
        "test_every_number_is_whole_at_every_width": ("benchmarks", "changes", "checks", "policy"),
    },
    "sides/test_checkpoint.py": {
        "test_a_first_step_that_overflowed_is_saved_with_no_update_applied": ("jax",),
        "test_without_a_seal_it_is_restored_by_its_step_only": ("best-jax", "latest-jax"),
    },
    "sides/test_companions.py": {
        "test_nothing_else_is_needed": ("torch_side.optim-others1",),
        "test_what_is_absent_is_one_error_that_lists_what_is_needed": ("jax_side.optim-xxhash",),
    },
    "sides/test_inconsistent.py": {
        "test_an_inconsistent_state_is_not_saved_exported_or_trained_on_and_restore_heals_it": ("jax",),
        "test_buffers_that_jax_was_given_and_lost_are_made_anew": ("loop",),
    },
    "sides/test_inference.py": {
        "test_the_examples_give_what_they_say": ("jax",),
        "test_the_model_of_a_run_is_that_of_its_trainer": (
            "adam-jax",
            "statistics and counters-jax",
            "tied weights-jax",
            "two groups-jax",
        ),
        "test_the_parameters_of_a_run_are_exported_alone": (
            "statistics and counters-jax",
            "tied weights-jax",
            "two groups-jax",
        ),
    },
    "sides/test_label.py": {
        "test_every_file_is_labelled_as_the_run_was_when_it_was_saved": (
            "loss scaler-jax",
            "statistics and counters-jax",
        ),
    },
    "sides/test_new_model.py": {
        "test_a_run_of_a_new_model_resumes_bit_for_bit": ("jax",),
    },
    "sides/test_optimizers.py": {
        "test_a_group_has_its_own_rate_and_decay": ("jax",),
        "test_a_run_resumes_from_its_checkpoint_bit_for_bit": ("jax-adafactor", "jax-nadam"),
        "test_a_skipped_first_step_leaves_the_start": ("jax-adafactor", "jax-adagrad"),
        "test_the_twins_agree_and_their_states_cross_bit_for_bit": (
            "adafactor",
            "adagrad",
            "adamw in groups",
            "nadam",
            "rmsprop",
        ),
    },
    "sides/test_state.py": {
        "test_a_state_trained_in_jax_crosses_to_torch_and_back": (
            "cnn-digits-float16",
            "cnn-digits-float64",
            "gpt-text-float16",
            "gpt-text-float64",
            "linear-regression-float16",
            "mlp-digits-float16",
            "mlp-digits-float64",
        ),
        "test_an_export_is_a_copy_and_an_import_copies_too": ("jax",),
    },
    "sides/test_trees.py": {
        "test_everything_comes_back_to_the_last_bit_and_type": ("jax",),
    },
    "sides/test_trees_alone.py": {
        "test_the_frameworks_own_library_reads_it_without_this_project": ("jax",),
    },
    "sides/test_twin_schedules.py": {
        "test_a_plateau_follows_the_metric_of_validations_that_are_due": ("jax",),
        "test_the_twins_agree_and_resume_from_files": ("beside",),
    },
    "speed/test_measure.py": {
        "test_a_measurement_is_a_file_that_can_be_compared": ("jax-modes0",),
    },
    "storage/test_export.py": {
        "test_whatever_fails_in_an_export_it_is_whole_or_not_there": ("failing-once", "full", "read-only"),
    },
    "storage/test_failing_disk.py": {
        "test_whatever_fails_in_a_save_older_checkpoints_stay_and_one_error_tells_it": (
            "jax-orders1-100",
            "torch-orders0-400",
        ),
    },
    "storage/test_failing_runs.py": {
        "test_a_failed_fsync_of_an_array_is_one_line_and_no_traceback": ("1", "2", "3"),
        "test_a_failed_save_is_told_at_the_next_one_or_the_end_with_exit_3": (
            "4-continue-whole1-torch",
            "4-stop-whole0-jax",
            "4-stop-whole0-torch",
            "8-stop-whole2-jax",
            "8-stop-whole2-torch",
        ),
        "test_a_run_that_diverges_beside_a_failing_save_names_the_last_checkpoint_that_is_whole": (
            "jax-continue",
            "jax-stop",
        ),
        "test_a_run_that_lost_its_disk_ends_with_the_same_bits_on_a_sound_one": ("torch",),
        "test_records_that_cannot_be_written_exit_with_3_and_one_line": ("torch",),
        "test_what_fails_after_a_whole_save_is_told_as_that_and_exits_with_3": (
            "jax-.removed-2--2-6-continue",
            "jax-latest.json-3-2-continue",
            "jax-latest.json-3-2-stop",
            "torch-.removed-2--2-6-continue",
            "torch-.removed-2--2-6-stop",
            "torch-latest.json-3-2-continue",
            "torch-latest.json-3-2-stop",
        ),
    },
    "storage/test_random_kills.py": {
        "test_killed_at_random_a_run_loses_nothing_and_never_diverges": ("jax",),
    },
    "storage/test_two_writers.py": {
        "test_of_two_trainings_one_trains_and_the_other_exits_with_2_and_names_it": (
            "jax-existing",
            "jax-new",
            "torch-existing",
        ),
    },
    "torch_side/test_adapters.py": {
        "test_the_position_of_a_loader_is_seen_and_looking_does_not_move_it": ("1",),
    },
    "trackers/test_command.py": {
        "test_a_run_that_is_killed_and_resumed_is_shown_as_its_records_have_it": ("torch",),
        "test_a_run_without_it_loads_nothing_of_it": ("torch",),
    },
}
"""File to function to the parameters of the cases that wait."""


def is_long(node: str) -> bool:
    """Tell whether a case, by its node id, waits for the soak."""
    file, _, name = node.removeprefix("tests/").partition("::")
    function, _, case = name.partition("[")
    return case.removesuffix("]") in LONG.get(file, {}).get(function, ())
