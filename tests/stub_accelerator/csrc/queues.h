// Queues of the stub accelerator: each stream is a thread that runs what was submitted, in order, behind the host's back.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace stub {

using Work = std::function<void()>;

// How many submitted pieces of work may wait in a queue before the host waits, as a launch queue has its depth.
constexpr size_t kDepth = 1024;

// A place in a queue that hosts and other queues can wait for: one recording of an event, or a host's own signal.
class Mark {
 public:
  void reach();
  void wait();
  bool reached();
  // Nanoseconds on the clock of the device; 0 until the mark is reached.
  int64_t time_ns();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t time_ns_ = 0;
};

class Queue {
 public:
  // Appends work that is left out once the device has failed.
  void submit(Work work);
  // Appends work that runs whatever happened before: marks, and memory that is given back.
  void submit_always(Work work);
  // Appends a mark, and returns it.
  std::shared_ptr<Mark> mark();
  // Makes what follows in this queue wait for a mark.
  void wait_for(std::shared_ptr<Mark> mark);
  // Makes its thread, as a device makes its queues with their streams: no thread begins with the first call in one.
  void start();
  bool idle();

 private:
  void append(Work work);
  // Does so once; the lock is held.
  void begin();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;
  bool running_ = false;
  bool started_ = false;
};

// The number of devices, which the environment says.
int device_count();

// Returns the queue of a stream. That of a default stream, which nobody makes, starts with the first work in it.
Queue& queue(int device, int64_t stream);

// Makes a stream that nobody else has been given, until kStreams are out, and returns its number; then they are shared.
int64_t new_stream(int device);

// Waits until a queue, or all queues of a device, have done what was submitted. Throws what went wrong in them.
void finish(Queue& queue);
void finish(int device);

// Throws what went wrong on the device since the process began: like a real one, it stays broken.
void throw_failure();
void fail(std::exception_ptr error);

// Throws in a process that was forked from one that had used the device; everybody else has used it from now on.
void touch();
bool touched();
bool in_bad_fork();

int64_t now_ns();

// Lets other Python threads run while this one waits for the device.
class WithoutInterpreter {
 public:
  WithoutInterpreter();
  ~WithoutInterpreter();
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;

 private:
  void* state_ = nullptr;
};

}  // namespace stub
