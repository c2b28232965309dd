// The front of the room is the library's public header.
#pragma once

#include "deepinfer/engine.h"
