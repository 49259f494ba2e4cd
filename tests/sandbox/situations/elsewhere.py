"""Situations of a whole search or of a command, each with the test that holds it."""

from __future__ import annotations

ELSEWHERE: tuple[tuple[str, str], ...] = (
    (
        "a database names a folder for `resume` to remove",
        "tests/unit/study/test_searching.py::test_a_resume_touches_no_folder_that_the_database_names",
    ),
    (
        "a URL of a database has options that read the user's files",
        "tests/cli/test_reading.py::test_a_driver_option_that_reads_the_users_files_is_refused_by_name",
    ),
    (
        "a study file in a cloned folder names a server",
        "tests/cli/test_reading.py::test_a_server_that_a_study_file_names_is_not_asked_before_the_user_agrees",
    ),
    ("TAB in a folder whose study file names a server", "tests/cli/test_reading.py::test_a_completion_asks_no_server"),
    (
        "TAB beside a database of another program",
        "tests/cli/test_reading.py::test_a_completion_leaves_a_file_of_another_program_as_it_is",
    ),
    (
        "a reading verb on a database of an older release",
        "tests/cli/test_reading.py::test_a_database_of_an_older_release_is_not_migrated_by_who_reads_it",
    ),
    (
        "`resume` of a study of somebody else",
        "tests/unit/study/test_trust_record.py::"
        "test_a_study_of_somebody_else_is_shown_whole_and_goes_on_once_it_is_agreed_to",
    ),
    (
        "a study file leads out of its folder",
        "tests/cli/test_trust.py::test_a_search_asks_for_agreement_where_a_study_file_leads_out_of_its_folder",
    ),
    (
        "a config of somebody else adds arguments",
        "tests/cli/test_trust.py::test_a_run_under_a_config_of_somebody_else_adds_no_argument_unasked",
    ),
    (
        "a config asks for a billion workers",
        "tests/cli/test_trust.py::test_a_config_with_an_absurd_number_is_refused_by_name",
    ),
    (
        "one row of a database cannot be read",
        "tests/cli/test_unreadable.py::"
        "test_a_study_that_cannot_be_read_is_left_out_of_the_list_by_name_and_can_be_deleted",
    ),
    (
        "`torch.py` lies in the working directory of `doctor`",
        "tests/unit/study/test_machine_check.py::test_a_file_torch_in_the_working_directory_is_not_run",
    ),
    (
        "a module `autotune` lies beside the script",
        "tests/unit/study_file/test_command.py::test_a_module_that_hides_our_package_from_the_script_is_refused",
    ),
    (
        "the interpreter is told to ignore the environment",
        "tests/unit/study/test_probing.py::test_a_command_that_ignores_the_environment_is_refused_before_it_is_run",
    ),
    (
        "the name of the working directory is no text",
        "tests/cli/test_process.py::test_a_working_directory_whose_name_is_no_text_is_refused_in_words",
    ),
    (
        "a TMPDIR too long for sockets",
        "tests/integration/runner/test_surroundings.py::"
        "test_processes_talk_to_each_other_under_a_temporary_folder_of_a_long_name",
    ),
    (
        "a `/proc` that cannot be read",
        "tests/unit/study/test_target.py::"
        "test_a_machine_whose_proc_cannot_be_read_is_refused_before_anything_is_stored",
    ),
    (
        "mounts inside the project, of this user and of another",
        "tests/integration/runner/test_mounts.py::test_what_is_mounted_inside_is_seen_and_not_changed",
    ),
    (
        "mounts inside a folder for real writes",
        "tests/integration/runner/test_mounts.py::test_what_is_mounted_inside_a_writable_folder_is_written_for_real",
    ),
    (
        "a crowded folder around the project, with a mount inside",
        "tests/integration/runner/test_mounts.py::"
        "test_a_users_crowded_project_with_a_mount_inside_falls_back_to_landlock",
    ),
    (
        "a project with 1,200 links",
        "tests/sandbox/test_what_is_handed_on.py::test_a_project_with_many_links_is_opened_without_following_them",
    ),
    (
        "the probe's outputs are in the way of later runs",
        "tests/sandbox/test_what_is_handed_on.py::"
        "test_trials_see_the_probes_downloads_and_caches_and_none_of_its_outputs",
    ),
    (
        "a script needs a service of the network",
        "tests/sandbox/test_network.py::"
        "test_the_probe_has_the_network_and_later_trials_have_none_until_they_are_connected",
    ),
    (
        "the fork server's interpreter runs a sitecustomize of the user's",
        "tests/sandbox/test_what_is_handed_on.py::"
        "test_the_server_of_the_imports_is_in_its_layers_before_its_interpreter_starts",
    ),
    (
        "hostile scripts in forked trials under Landlock",
        "tests/sandbox/test_landlock.py::test_it_holds_in_forked_trials_too",
    ),
    (
        "a large file is opened for update, without layers",
        "tests/unit/sandbox/test_redirection.py::test_a_large_file_is_not_copied_in_silence",
    ),
    (
        "a large file is opened for update, with layers",
        "tests/unit/sandbox/test_overlay.py::test_the_users_large_files_that_a_probe_copied_are_named",
    ),
    ("a script prints a key", "tests/cli/test_secrets.py::test_what_a_script_printed_is_stored_without_the_secret"),
    ("a report with a key is mailed", "tests/cli/test_secrets.py::test_a_report_that_is_mailed_has_no_secret"),
    (
        "a token is typed as an argument",
        "tests/unit/study/test_trust_record.py::test_a_secret_argument_is_in_no_database_and_a_resume_has_it",
    ),
    (
        "a password with an @ in a URL",
        "tests/cli/test_secrets.py::test_no_fragment_of_a_password_is_shown_or_taken_for_the_host",
    ),
    ("another user reads the database", "tests/cli/test_reading.py::test_a_database_is_made_for_this_user_alone"),
    (
        "an interrupt during the imports",
        "tests/cli/test_process.py::test_an_interrupt_while_the_command_is_loaded_is_no_traceback",
    ),
    (
        "a scheduler's warning during the imports",
        "tests/cli/test_process.py::"
        "test_a_schedulers_warning_during_the_imports_ends_no_command_and_asks_a_search_to_stop",
    ),
    (
        "a scheduler's warning to every process of a trial",
        "tests/integration/runner/test_endings.py::test_a_schedulers_warning_to_every_process_ends_no_trial",
    ),
    (
        "a scheduler's warning to a fork server",
        "tests/integration/runner/test_forked.py::"
        "test_a_schedulers_warning_ends_neither_the_server_nor_the_forked_trial",
    ),
    (
        "the tuner is interrupted, terminated or killed",
        "tests/integration/search/test_faults_of_tuner.py::test_a_signal_costs_no_finished_trial",
    ),
    (
        "the tuner is killed at random moments",
        "tests/integration/search/test_kills.py::test_kills_at_random_moments_lose_and_repeat_no_finished_trial",
    ),
    (
        "tuner and supervisor are killed together",
        "tests/integration/runner/test_tuner_death.py::"
        "test_tuner_and_supervisor_killed_together_are_cleaned_up_by_the_next_search",
    ),
    (
        "the terminal goes away",
        "tests/integration/search/test_faults_of_tuner.py::"
        "test_a_terminal_that_goes_away_ends_the_search_in_good_order",
    ),
    (
        "the disk under the database is full",
        "tests/integration/search/test_faults_of_tuner.py::"
        "test_a_full_disk_under_the_database_loses_only_what_did_not_fit",
    ),
    (
        "somebody else made the temporary folder before",
        "tests/unit/sandbox/test_workspace.py::test_a_folder_that_somebody_else_laid_out_is_not_taken",
    ),
    (
        "a trial's folder becomes a link",
        "tests/unit/sandbox/test_workspace.py::test_a_trial_that_was_replaced_by_a_link_is_removed_and_not_followed",
    ),
    (
        "odd names of files in the C locale",
        "tests/integration/runner/test_surroundings.py::test_odd_names_work_in_the_c_locale",
    ),
    (
        "an automounter mounts during a trial",
        "tests/integration/runner/test_mounts.py::test_a_mount_of_an_automounter_during_a_trial_is_seen",
    ),
    (
        "a trial takes all inodes of the temporary space",
        "tests/sandbox/test_full_inodes.py::"
        "test_a_trial_that_takes_all_inodes_changes_nothing_and_leaves_room_for_the_next",
    ),
    (
        "a group's folder out of an ordinary user's reach",
        "tests/sandbox/test_out_of_reach.py::test_a_groups_file_too_large_to_copy_is_named",
    ),
    (
        "a script clears its environment before it imports torch",
        "tests/integration/trial/test_injection.py::"
        "test_a_script_that_clears_its_environment_before_it_imports_torch_is_attached_to",
    ),
    (
        "a failed script prints orders to the terminal",
        "tests/unit/runner/test_reports.py::test_what_a_terminal_would_obey_is_not_in_the_tail_of_a_log",
    ),
    (
        "a link lies under the temporary name of a packed file",
        "tests/unit/storage/test_packed.py::test_a_link_laid_under_a_temporary_name_leads_nobody_out",
    ),
    (
        "a study is named like an option",
        "tests/contract/repository_contract.py::test_a_name_that_cannot_be_stored_is_refused",
    ),
    (
        "`doctor` in a folder that layers cannot cover",
        "tests/unit/study/test_machine_check.py::test_protection_is_tried_over_the_folders_of_a_search_started_here",
    ),
)
"""Pairs of a situation and a test."""
