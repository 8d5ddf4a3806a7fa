// Prompts that a faster machine runs: the flags of the asking machine, and how the other machine describes its pages.
#pragma once
#include "model/prefix/owner.h"
#include "model/prefix/remote_pages.h"
#include "tools/server/service.h"
#include "tools/tq-run/engine/prefix.h"

namespace tq {

void add_prefill_flags(ArgumentParser& command, PrefixArguments& arguments);
// The other machine: the flag's address, else that of the environment variable TQ_PREFILL_FROM. Empty: none.
std::string prefill_address(const PrefixArguments& arguments);

// `owner`: of this machine's own pages, with the model's fingerprint. Throws Error if the address or the key is not valid.
RemotePages::Options remote_options(const PrefixArguments& arguments, const Engine& engine, const OwnerTexts& owner);

// Returns the options of a server that runs prompts for other machines. The model is read for its fingerprint when that is first
// needed. The engine, which still has its forward pass now, must outlive the result.
server::PrefillOptions prefill_options(const PrefixArguments& arguments, const Engine& engine);

} // namespace tq
