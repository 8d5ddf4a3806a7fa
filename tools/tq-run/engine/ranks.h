// A job of several processes that MPI started, its ranks, which share a model (--layers-per-rank).
#pragma once
#include <optional>
#include <string>

namespace tq {

struct ModelArguments;
struct Setup;

// On ranks other than 0 of a job that shares a model, has their part of it until rank 0 ends the job, and returns the exit
// status. Nothing on rank 0 or without a job. Commands that share a model call it before anything else.
std::optional<int> run_as_rank(const ModelArguments& arguments);

// On rank 0, waits for the others, and sets them in `setup`. Throws Error, if they do not agree with it, or one cannot take
// part.
void share_with_ranks(Setup& setup);

// The device of --device for this rank: of a list the one with its number, else the one name; the whole list without a job.
// Throws UsageError if the list is not as long as the job has ranks, and if each of several processes would do the same.
std::string own_device(const ModelArguments& arguments);

// Ends the job, when nothing uses the ranks any more.
void leave_job();

} // namespace tq
