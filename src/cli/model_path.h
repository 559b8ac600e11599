// Where a model that was named on the command line lies.
#pragma once

#include <string>
#include <vector>

#include "nibble/status.h"

namespace nibble::cli {

// Places to look, taken from the environment once.
struct ModelPlaces {
  std::string demo;        // NIBBLE_DEMO; empty: not set
  std::string executable;  // the demo is looked for from its folder
  std::string hub_cache;   // of Hugging Face; empty: none
};

// HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub: the first
// that is set.
ModelPlaces model_places(const std::string& executable);

// A folder as it is; otherwise a name in the Hugging Face cache ("openai/gpt-oss-20b", or
// "gpt-oss-20b" when one organisation has it), in the revision `main` or the only one there. An
// empty name is the demo checkpoint: `demo` if set and nothing else; or share/nibble/models/demo of
// the installation; or the one of the source tree that the program was built in. kNotFound says
// where was looked.
Result<std::string> find_model(const std::string& name, const ModelPlaces& places);

}  // namespace nibble::cli
