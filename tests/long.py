"""Cases that `make soak` runs and `make test` leaves out, by their measured time: other cases of the same test stay.

A case is here if it took more than 2.5 seconds of the gate, which has thirty minutes, and the same test has a shorter
case; of tests whose cases are all long, the shortest stays.
"""

__all__ = ["LONG", "is_long"]

LONG: dict[str, dict[str, tuple[str, ...]]] = {
    "benchmarks/test_bare_loops.py": {
        "test_a_loop_that_does_other_work_is_not_compared": ("jax-another rate",),
        "test_the_bare_jax_loops_give_the_twins_losses_and_again_after_a_reset": ("cnn-digits",),
    },
    "benchmarks/test_unsealed.py": {
        "test_nothing_is_digested_and_everything_is_written": ("jax",),
    },
    "cli/test_bad_input.py": {
        "test_no_whole_checkpoint_says_what_was_found_and_why_it_does_not_count": ("jax",),
        "test_twenty_skips_in_a_row_stop_the_run_and_nineteen_do_not": ("jax",),
    },
    "cli/test_bad_values.py": {
        "test_what_never_ends_is_neither_read_nor_waited_for": (
            "train --side jax --dir run --spec mlp-digits --set batch=512 --set mesh.data=512",
            "train --side torch --dir run --spec ./pipe.toml",
            "train --side torch --dir run --spec /dev/zero",
            "train --side torch --dir run --spec gpt-text --set data.path=pipe.toml",
            "train --side torch --dir run --spec zero.toml",
        ),
    },
    "cli/test_check_progress.py": {
        "test_every_check_reports_its_steps": ("checks0-sides0",),
    },
    "cli/test_help.py": {
        "test_no_color_means_no_escape_code_on_a_terminal": ("train --side",),
    },
    "cli/test_interrupt.py": {
        "test_control_c_ends_a_short_command_with_one_line": ("policy-read_curve-words3",),
    },
    "cli/test_lost_streams.py": {
        "test_a_check_whose_progress_is_lost_writes_what_it_judged_and_ends": ("full-3",),
        "test_a_command_whose_output_is_lost_gives_no_verdict": ("check-full", "check-pipe"),
        "test_training_continues_without_its_lines": (
            "jax-stderr-full",
            "jax-stderr-pipe",
            "jax-stdout-full",
            "jax-stdout-pipe",
            "torch-stdout-full",
            "torch-stdout-pipe",
        ),
        "test_training_outlives_a_reader_that_has_read_enough": ("jax",),
    },
    "convert/test_convert.py": {
        "test_a_killed_conversion_leaves_nothing_that_looks_whole": ("torch.save",),
    },
    "convert/test_from_jax.py": {
        "test_pytorch_has_every_element": ("Orbax, one save", "Orbax, version 1", "flax.training"),
    },
    "corpus/test_clean.py": {
        "test_it_is_not_called_broken": ("ddpg", "nnx_orbax_manager"),
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
            "truncated_history",
        ),
    },
    "corpus/test_places.py": {
        "test_a_copy_that_is_saved_and_loaded_is_never_red": ("array_array", "generator_locals", "sqlite_in_memory"),
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
        "test_the_record_copied_without_a_change_is_not_found_out": ("jax",),
    },
    "docs/test_project_files.py": {
        "test_the_site_is_built_and_what_is_wrong_in_a_docstring_or_page_fails_the_build": (
            "--None",
            "A guide-[A guide](missing.md)-missing.md",
            "Do it.-Do {py:fun}`it`.-py:fun",
        ),
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
        "test_clean_trainer_is_green_on_all_roads": ("train0",),
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
    },
    "faults/test_planted.py": {
        "test_clean_run_is_green": ("accumulation-jax", "grain-jax"),
        "test_fault_is_red_and_named": (
            "aux_counter_reset-jax",
            "best_metric_from_latest-jax",
            "bn_stats_not_saved-jax",
            "dropout_hparam_not_reapplied-jax",
            "hparams_from_ckpt_win-jax",
            "keras_seed_generator_lost-jax",
            "master_rebuilt_from_bf16-jax",
            "normalizer_stats_reset-jax",
            "opt_state_not_restored-jax",
            "optax_count_reinit-jax",
            "param_order_swap-jax",
            "pretrained_over_checkpoint-jax",
            "rank_data_state_collapsed-jax",
            "rng_not_saved-jax",
            "scaler_not_saved-jax",
            "shuffle_window_flag_lost-jax",
            "skip_unit_grad_accum-jax",
            "tp_opt_reshard_wrong-jax",
        ),
    },
    "faults/test_roads.py": {
        "test_a_clean_run_holds_on_its_roads": ("torch-roads0",),
        "test_a_fault_of_one_road_is_found_there_and_named": ("again", "best"),
    },
    "faults/test_storage_faults.py": {
        "test_a_piece_that_was_not_in_memory_when_its_checkpoint_was_sealed_stops_the_load": (
            "mixed_generation-jax",
            "rng_stale_file_in_dir-jax",
        ),
        "test_what_was_changed_behind_its_seal_is_refused_named_and_moved_aside": (
            "mixed_generation-jax",
            "rng_stale_file_in_dir-jax",
        ),
    },
    "foreign/test_foreign_trainer.py": {
        "test_a_planted_fault_is_found_and_named": (
            "momentum lost-processes",
            "noise reseeded-processes",
            "position off by one-here",
            "position off by one-processes",
        ),
        "test_it_resumes_bitwise": ("processes",),
    },
    "hostile/test_catalogue.py": {
        "test_refused_by_name_or_proved_harmless": (
            "pickle-code-global-reduce",
            "pickle-code-posix-reduce",
            "scalars-empty-jax",
            "scalars-list-jax",
        ),
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
        "test_a_whole_checkpoint_of_another_run_is_moved_aside_like_a_damaged_one": (
            "model-jax",
            "optimizer-jax",
            "seed-jax",
        ),
    },
    "jax_side/test_checkpoint.py": {
        "test_a_save_is_sealed_with_the_digest_of_every_leaf": (
            "loss scaler",
            "statistics and counters",
            "tied weights",
        ),
        "test_every_array_has_a_place": ("tied weights",),
    },
    "jax_side/test_compiled.py": {
        "test_a_program_from_the_cache_gives_the_bits_of_one_compiled_anew": ("cnn-digits",),
    },
    "jax_side/test_differences.py": {
        "test_the_loss_of_low_precision_logits_is_computed_in_float32_on_both_sides": ("bfloat16",),
        "test_whole_models_agree_in_float64": ("gpt-text-extra0", "gpt-text-extra1"),
    },
    "jax_side/test_orbax_alone.py": {
        "test_orbax_alone_restores_every_leaf_of_every_item": ("adam", "sgd without momentum"),
    },
    "jax_side/test_programs.py": {
        "test_a_run_that_computes_something_else_has_its_own": ("clip_norm",),
    },
    "jax_side/test_scan_loop.py": {
        "test_a_scan_with_overflows_is_the_loop_with_overflows": ("cnn-digits", "gpt-text", "mlp-digits"),
        "test_dropout_resumes_bitwise": ("shared",),
        "test_native_dropout_trains_and_its_stream_moves": ("gpt-text",),
        "test_scans_of_any_length_and_the_loop_are_bitwise_equal": ("cnn-digits", "gpt-text", "mlp-digits"),
    },
    "jax_side/test_topology.py": {
        "test_any_number_of_devices_and_any_change_between_them_stays_inside_the_envelope": (
            "cnn-digits",
            "gpt-text",
        ),
    },
    "jax_side/test_whole.py": {
        "test_it_is_bit_for_bit_what_orbax_reads": (
            "sgd without momentum-1000",
            "tied weights-1000",
            "tied weights-16777216",
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
            "nanogpt_style-7-all",
            "prefetched-11-quick",
            "prefetched-13-all",
            "prefetched-7-all",
        ),
        "test_a_clean_trainer_holds_in_processes_that_are_killed": ("class_style",),
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
    },
    "live/test_endings.py": {
        "test_a_resumed_run_that_calls_sys_exit_is_judged": ("3", "None"),
        "test_what_is_no_file_in_the_folder_is_no_error": ("device", "pipe"),
    },
    "live/test_forks.py": {
        "test_what_a_module_seeds_at_its_top_stays_seeded": ("process",),
    },
    "live/test_jax_adapters.py": {
        "test_a_clean_trainer_holds": (
            "train_folded-5",
            "train_folded-8",
            "train_grain-5",
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
            "train_raw-12",
            "train_raw-5",
            "train_raw-8",
            "train_raw-9",
        ),
        "test_a_planted_fault_is_found_and_named_first": (
            "train_linen-optimizer_lost-schedule.step",
            "train_nnx-counters_as_floats-schedule.step",
            "train_nnx-mode_left-model.mode",
            "train_nnx-params_rounded-model.params",
            "train_nnx-replace_discarded-model.params",
            "train_nnx-schedule_of_the_rest-schedule.decay_steps",
        ),
    },
    "live/test_left_behind.py": {
        "test_the_same_loop_without_a_loss_holds": ("bytes",),
    },
    "live/test_left_variables.py": {
        "test_its_fault_is_found": ("distills_under_a_condition",),
    },
    "live/test_loads.py": {
        "test_what_is_set_before_it_is_read_is_listed": ("process",),
    },
    "live/test_loops_of_others.py": {
        "test_a_clean_loop_resumes": ("epochs", "events"),
        "test_what_a_loop_loses_is_named": ("epochs-generator", "events-noise", "events-penalty"),
    },
    "live/test_misses.py": {
        "test_a_best_metric_that_the_next_evaluation_replaces_was_lost_all_the_same": ("best",),
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
    "live/test_sharded_trainer.py": {
        "test_a_sharded_loop": ("clean", "plain"),
    },
    "live/test_untold_state.py": {
        "test_what_was_lost_is_named_by_its_path": (
            "closure-kept.rate",
            "own scaler-scaling.",
            "slow weights-slow[0]",
        ),
    },
    "optim/test_bits.py": {
        "test_counts_and_scalars_follow_64_bit_types_as_torchs_follow_its_default_dtype": ("True-default0",),
        "test_float32_has_torchs_bits_under_jit_and_in_a_scan": ("RAdam",),
    },
    "optim/test_command.py": {
        "test_the_figures_are_those_of_the_arguments_that_were_given": ("Adam lr=0.01 weight_decay=0.1",),
    },
    "optim/test_edges.py": {
        "test_a_row_is_torchs_in_every_optimizer": ("plain", "zero gradients"),
    },
    "optim/test_equivalence.py": {
        "test_a_figure_is_measured_again": ("NAdam",),
    },
    "optim/test_resume.py": {
        "test_a_run_is_handed_over_to_jax_and_back_without_a_difference": (
            "Adafactor-plateau-rounded to float16",
            "Adamax-plateau-rounded to float16",
            "NAdam-one-cycle-rounded to float16",
        ),
        "test_a_run_is_handed_over_to_pytorch_and_back_without_a_difference": (
            "Adafactor-constant-rounded to float16",
        ),
        "test_a_run_that_was_stopped_in_jax_continues_bitwise": (
            "Adafactor-one-cycle-float16",
            "Lion-plateau-float16",
            "Muon-plateau-float64",
            "Rprop-constant-float16",
        ),
    },
    "parity/test_together.py": {
        "test_when_one_fails_all_end_with_its_code_and_name_it_in_one_line": ("1", "2"),
    },
    "parity/test_written_before.py": {
        "test_a_run_continues_as_if_it_had_never_stopped": ("jax-float32", "jax-float64"),
    },
    "ports/test_handover.py": {
        "test_what_the_conversion_loses_is_named": ("count", "m", "p"),
        "test_what_the_way_back_loses_is_named": ("e", "m", "v"),
    },
    "ports/test_twins.py": {
        "test_a_port_with_other_names_layouts_and_sums_trains_alike": ("train_narrow-float32",),
        "test_below_float64_every_fault_is_found": (
            "beta1",
            "beta2",
            "clip",
            "decay",
            "ema",
            "epsilon",
            "forward",
            "frozen",
            "gradient",
            "late",
            "loss",
            "order",
            "rate",
        ),
        "test_every_fault_of_a_port_is_found_and_its_component_comes_first": (
            "beta1",
            "beta2",
            "clip",
            "decay",
            "ema",
            "epsilon",
            "forward",
            "frozen",
            "gradient",
            "late",
            "loss",
            "order",
            "rate",
            "start",
        ),
        "test_noise_is_measured_until_it_decides": ("float32, another", "float64"),
        "test_what_ports_to_nnx_get_wrong_is_named": ("beta2", "decay"),
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
    "processes/test_installed_side.py": {
        "test_an_installed_side_passes_every_check_of_a_spec_in_every_precision": ("bfloat16", "float16", "float64"),
    },
    "processes/test_new_best.py": {
        "test_a_new_best_is_saved_where_intervals_do_not_meet": ("jax",),
        "test_without_it_no_state_names_a_best_that_was_not_saved": ("jax",),
    },
    "processes/test_policy_check.py": {
        "test_a_side_holds_every_case_on_disk": ("jax",),
        "test_a_side_that_goes_back_beside_what_is_newer_is_broken": ("jax",),
    },
    "processes/test_resume_cases.py": {
        "test_a_trainer_that_quietly_starts_from_zero_is_red": ("jax",),
        "test_killed_run_resumes_bitwise": (
            "at an exact epoch end-jax",
            "before the first checkpoint-jax",
            "inside an accumulation, in an epoch after the first-jax",
            "right after a skipped fp16 step-jax",
        ),
        "test_killed_while_a_save_is_under_way_in_the_background": ("22",),
    },
    "processes/test_signals.py": {
        "test_a_save_that_hangs_is_given_up_at_the_deadline": ("jax-background", "torch-background", "torch-save"),
        "test_a_second_signal_ends_a_process_at_once": ("torch",),
        "test_a_terminal_that_closes_costs_nothing_but_the_lines": ("torch",),
        "test_signal_saves_and_exits_with_128_plus_it": ("jax-1", "jax-15", "jax-2"),
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
    "report/test_browser.py": {
        "test_a_planted_request_is_seen": ("image", "image of this machine", "style"),
        "test_the_page_renders_without_a_complaint_and_without_a_request": ("every kind of check",),
    },
    "report/test_layout.py": {
        "test_a_page_can_be_read_and_reached_at_every_width": ("checks-800-dark",),
    },
    "report/test_terminal_widths.py": {
        "test_every_number_is_whole_at_every_width": ("benchmarks", "changes", "checks", "policy"),
    },
    "sides/test_checkpoint.py": {
        "test_a_first_step_that_overflowed_is_saved_with_no_update_applied": ("jax",),
        "test_without_a_seal_it_is_restored_by_its_step_only": ("latest-jax",),
    },
    "sides/test_companions.py": {
        "test_nothing_else_is_needed": ("torch_side.optim-others1",),
    },
    "sides/test_inconsistent.py": {
        "test_buffers_that_jax_was_given_and_lost_are_made_anew": ("loop",),
    },
    "sides/test_inference.py": {
        "test_the_model_of_a_run_is_that_of_its_trainer": (
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
    "sides/test_state.py": {
        "test_a_state_trained_in_jax_crosses_to_torch_and_back": (
            "cnn-digits-float16",
            "cnn-digits-float64",
            "gpt-text-float16",
            "gpt-text-float64",
            "mlp-digits-float16",
            "mlp-digits-float64",
        ),
    },
    "sides/test_trees_alone.py": {
        "test_the_frameworks_own_library_reads_it_without_this_project": ("jax",),
    },
    "storage/test_export.py": {
        "test_whatever_fails_in_an_export_it_is_whole_or_not_there": ("full", "read-only"),
    },
    "storage/test_failing_disk.py": {
        "test_whatever_fails_in_a_save_older_checkpoints_stay_and_one_error_tells_it": (
            "jax-orders1-100",
            "torch-orders0-400",
        ),
    },
    "storage/test_failing_runs.py": {
        "test_a_failed_save_is_told_at_the_next_one_or_the_end_with_exit_3": (
            "4-continue-whole1-torch",
            "4-stop-whole0-jax",
            "4-stop-whole0-torch",
            "8-stop-whole2-jax",
            "8-stop-whole2-torch",
        ),
        "test_a_run_that_lost_its_disk_ends_with_the_same_bits_on_a_sound_one": ("torch",),
        "test_records_that_cannot_be_written_exit_with_3_and_one_line": ("torch",),
        "test_what_fails_after_a_whole_save_is_told_as_that_and_exits_with_3": (
            "jax-latest.json-3-2-stop",
            "torch-latest.json-3-2-continue",
            "torch-latest.json-3-2-stop",
        ),
    },
    "storage/test_random_kills.py": {
        "test_killed_at_random_a_run_loses_nothing_and_never_diverges": ("jax",),
    },
    "storage/test_two_writers.py": {
        "test_of_two_trainings_one_trains_and_the_other_exits_with_2_and_names_it": ("jax-existing", "jax-new"),
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
