// An answer's constraint, taken along its drafts and back. Private to the room and its tests.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "sampling/constraint.h"

namespace deepinfer {

// The state is borrowed and, when this goes, what it was. Null: everything is allowed.
class DraftWalk {
 public:
  explicit DraftWalk(ConstraintState* state) : state_(state) {}
  DraftWalk(DraftWalk&& other) noexcept
      : state_(std::exchange(other.state_, nullptr)), taken_(other.taken_), ended_(other.ended_) {}
  DraftWalk& operator=(DraftWalk&&) = delete;
  ~DraftWalk() {
    if (state_ != nullptr && taken_ > 0) state_->rollback(taken_);
  }

  // Fills the mask of the next draft. False: nothing is forbidden.
  bool fill_mask(std::vector<uint32_t>& mask, int64_t vocab_size) {
    mask.resize(static_cast<size_t>(mask_words(vocab_size)));
    return state_ != nullptr && state_->fill_mask(mask);
  }
  // False: the draft ends before this id, which is not allowed here.
  bool take(int32_t id) {
    if (state_ == nullptr || ended_) return !ended_;
    ended_ = taken_ == state_->max_rollback() || !state_->accept(id).ok();
    taken_ += ended_ ? 0 : 1;
    return !ended_;
  }
  void end() { ended_ = true; }
  bool ended() const { return ended_; }

 private:
  ConstraintState* state_;
  int64_t taken_ = 0;
  bool ended_ = false;
};

}  // namespace deepinfer
